#include "cli/relay/transport_relay.h"

#include <map>
#include <utility>

#include "base/mutex.h"
#include "cli/relay/relay_client.h"
#include "cli/relay/relay_tree.h"
#include "cli/transport/agent_copy.h"
#include "cli/transport/child_link.h"
#include "cli/transport/hello.h"
#include "cli/transport/resumable_link.h"
#include "cli/transport/ssh/ssh_node_command.h"
#include "cli/transport/ssh/transport_ssh.h"
#include "cli/transport/transport_command.h"

namespace dslaunch {
namespace {

// Longest time for which a node that does not answer, or whose login is slow, delays its group.
constexpr milliseconds kNextRelayAfter(3'000);
constexpr milliseconds kLoginWithin(10'000);
constexpr milliseconds kRelayEndsWithin(2'000);  // limit after the end of the relay's last program
constexpr char kHint[] =
    "; nodes are reached through relays, which need ssh between the nodes without a prompt; "
    "--fanout 0 reaches each from here";

// Runs ssh on a relay. Logins need not wait for each other, because the nodes have different sshd
// servers.
class RelaySshCommand : public SshNodeCommand {
 public:
  using SshNodeCommand::SshNodeCommand;
  std::string GateName(const NodeTarget&, Deadline) const override { return ""; }
};

}  // namespace

// The groups of nodes and their relays, shared by the transport and its links.
class RelayTransport::Tree : public std::enable_shared_from_this<Tree> {
 public:
  explicit Tree(Options options);

  Result<std::unique_ptr<NodeLink>> ConnectAs(const AgentRole& role, const NodeTarget& target,
                                              Deadline deadline);
  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline);

 private:
  struct Group;
  class Link;
  class JobLink;

  // Returns the loop, which is started with the first relay.
  Result<std::shared_ptr<LoopThread>> Loop();
  // Returns the relay that another node has become; null if this node must become the relay.
  std::shared_ptr<RelayClient> AwaitRelay(Group& group, std::optional<Deadline> by);
  Result<std::unique_ptr<NodeLink>> BecomeRelay(const std::shared_ptr<Group>& group,
                                                const AgentRole& role, const NodeTarget& target,
                                                Deadline deadline);
  Result<std::unique_ptr<NodeLink>> ConnectBy(const std::shared_ptr<RelayClient>& relay,
                                              const AgentRole& role, const NodeTarget& target,
                                              Deadline deadline);

  const Options options_;
  std::map<std::string, std::shared_ptr<Group>> groups_;  // group of each node, by node name
  Mutex mutex_;
  std::shared_ptr<LoopThread> loop_ DSL_GUARDED_BY(mutex_);
};

struct RelayTransport::Tree::Group {
  Mutex mutex;
  CondVar changed;
  std::shared_ptr<RelayClient> relay DSL_GUARDED_BY(mutex);
  // Number of nodes that are being reached as relays, and the time from which another node may try
  // too. A node that has answered may take as long as copying the agent takes.
  size_t num_candidates DSL_GUARDED_BY(mutex) = 0;
  Deadline next_candidate DSL_GUARDED_BY(mutex) = Deadline::After(milliseconds(0));
};

// A connection through a relay. The last connection of a relay ends the relay.
class RelayTransport::Tree::Link : public NodeLink {
 public:
  Link(std::shared_ptr<RelayClient> relay, std::unique_ptr<NodeLink> link, std::string address)
      : relay_(std::move(relay)), link_(std::move(link)), address_(std::move(address)) {}

  UniqueFd TakeFd() override { return link_->TakeFd(); }
  HeldStream TakeStream() override { return link_->TakeStream(); }
  void Abort(const std::string& why) override { link_->Abort(why); }
  bool WaitEnd(Deadline deadline) override {
    return link_->WaitEnd(deadline) &&
           relay_->EndIfIdle(Deadline::After(kRelayEndsWithin).Earlier(deadline));
  }
  void LeaveRunning() override { link_->LeaveRunning(); }
  std::string Notice() const override { return link_->Notice(); }
  std::string StderrTail() const override { return link_->StderrTail(); }
  std::string Address() const override { return address_; }
  std::string StartNonce() const override { return link_->StartNonce(); }

 private:
  const std::shared_ptr<RelayClient> relay_;
  const std::unique_ptr<NodeLink> link_;
  const std::string address_;
};

// A connection to a supervisor. If its connections cannot deliver the exit status, the node is
// asked for the status.
class RelayTransport::Tree::JobLink : public NodeLink {
 public:
  JobLink(std::shared_ptr<Tree> tree, NodeTarget target, std::unique_ptr<NodeLink> link)
      : tree_(std::move(tree)), target_(std::move(target)), link_(std::move(link)) {}

  UniqueFd TakeFd() override { return link_->TakeFd(); }
  HeldStream TakeStream() override { return link_->TakeStream(); }
  void Abort(const std::string& why) override { link_->Abort(why); }
  bool WaitEnd(Deadline deadline) override {
    return link_->WaitEnd(deadline) || (!deadline.Expired() && HasEndedBy(deadline));
  }
  void LeaveRunning() override { link_->LeaveRunning(); }
  std::string Notice() const override { return link_->Notice(); }
  std::string StderrTail() const override { return link_->StderrTail(); }
  std::string Address() const override { return link_->Address(); }

 private:
  bool HasEndedBy(Deadline deadline) const {
    AgentRole role;
    role.kind = AgentRole::Kind::kAwaitEnd;
    role.start_nonce = link_->StartNonce();
    return !role.start_nonce.empty() && tree_->ConnectAs(role, target_, deadline).ok();
  }

  const std::shared_ptr<Tree> tree_;
  const NodeTarget target_;
  const std::unique_ptr<NodeLink> link_;
};

RelayTransport::Options RelayTransport::OverSsh(const AgentBinary& agent, const AgentRole& role,
                                                const SshOptions& ssh,
                                                std::vector<std::string> ssh_command,
                                                std::vector<NodeTarget> nodes, size_t fanout) {
  if (ssh_command.empty()) ssh_command = {"ssh", "-o", "BatchMode=yes"};
  Options options;
  options.agent = agent;
  options.role = role;
  options.to_relay = [agent, ssh](OnStep on_step, bool is_again) {
    SshOptions relay_ssh = ssh;
    relay_ssh.on_step = std::move(on_step);
    if (is_again) relay_ssh.may_ask_again = false;
    AgentRole relay;
    relay.kind = AgentRole::Kind::kRelay;
    return std::make_shared<SshTransport>(agent, std::move(relay_ssh), relay);
  };
  options.from_relay = std::make_shared<RelaySshCommand>(std::move(ssh_command));
  options.hint = kHint;
  options.on_step = ssh.on_step;
  options.nodes = std::move(nodes);
  options.fanout = fanout;
  options.is_resumable = true;
  return options;
}

RelayTransport::Tree::Tree(Options options) : options_(std::move(options)) {
  std::shared_ptr<Group> group;
  for (size_t i = 0; i < options_.nodes.size(); ++i) {
    if (i == 0 || RelayOf(i, options_.fanout) != RelayOf(i - 1, options_.fanout))
      group = std::make_shared<Group>();
    groups_[options_.nodes[i].name] = group;
  }
}

Result<std::unique_ptr<NodeLink>> RelayTransport::Tree::Connect(const NodeTarget& target,
                                                                Deadline deadline) {
  AgentRole role = options_.role;
  const bool is_job =
      role.kind == AgentRole::Kind::kJob || role.kind == AgentRole::Kind::kDetachable;
  role.resumable = is_job && options_.is_resumable;
  DSL_TRY_ASSIGN(std::unique_ptr<NodeLink> link, ConnectAs(role, target, deadline));
  if (!is_job) return link;
  const std::shared_ptr<Tree> self = shared_from_this();
  if (role.resumable) {
    DSL_TRY_ASSIGN(ResumableLink::Connection first, ResumableLink::Over(std::move(link)));
    const auto reconnect = [self, target](const std::string& socket,
                                          Deadline by) -> Result<ResumableLink::Connection> {
      DSL_TRY_ASSIGN(std::unique_ptr<NodeLink> next,
                     self->ConnectAs(ResumeRole(socket), target, by));
      return ResumableLink::Over(std::move(next));
    };
    DSL_TRY_ASSIGN(link, ResumableLink::Open(std::move(first), reconnect));
  }
  return std::unique_ptr<NodeLink>(std::make_unique<JobLink>(self, target, std::move(link)));
}

// Connects to a node. The wait for a relay does not reduce the time that a starting node has. A
// supervisor whose connection broke waits only until its deadline, so the wait is then limited.
Result<std::unique_ptr<NodeLink>> RelayTransport::Tree::ConnectAs(const AgentRole& role,
                                                                  const NodeTarget& target,
                                                                  Deadline deadline) {
  const auto found = groups_.find(target.name);
  const std::shared_ptr<Group> group =
      found == groups_.end() ? std::make_shared<Group>() : found->second;
  const bool is_again = role.kind == AgentRole::Kind::kResume;
  const milliseconds limit = deadline.Left();
  const std::shared_ptr<RelayClient> relay =
      AwaitRelay(*group, is_again ? std::optional(deadline) : std::nullopt);
  const Deadline by = is_again ? deadline : Deadline::After(limit);
  if (relay) return ConnectBy(relay, role, target, by);
  return BecomeRelay(group, role, target, by);
}

Result<std::shared_ptr<LoopThread>> RelayTransport::Tree::Loop() {
  const MutexLock lock(mutex_);
  if (loop_) return loop_;
  DSL_TRY_ASSIGN(loop_, LoopThread::Start("for the relays"));
  return loop_;
}

std::shared_ptr<RelayClient> RelayTransport::Tree::AwaitRelay(Group& group,
                                                              std::optional<Deadline> by) {
  const MutexLock lock(group.mutex);
  const auto has_relay = [&]() DSL_REQUIRES(group.mutex) {
    return group.relay && group.relay->is_alive();
  };
  // The wait is bounded by the deadline of each candidate.
  while (!has_relay() && group.num_candidates > 0 && !group.next_candidate.Expired() &&
         !(by && by->Expired())) {
    const Deadline until = by ? by->Earlier(group.next_candidate) : group.next_candidate;
    group.changed.WaitUntil(group.mutex, until.when());
  }
  if (has_relay()) return group.relay;
  ++group.num_candidates;
  group.next_candidate = Deadline::After(kNextRelayAfter);
  return nullptr;
}

Result<std::unique_ptr<NodeLink>> RelayTransport::Tree::BecomeRelay(
    const std::shared_ptr<Group>& group, const AgentRole& role, const NodeTarget& target,
    Deadline deadline) {
  const bool is_again = role.kind == AgentRole::Kind::kResume;
  const OnStep on_step = [group, then = is_again ? OnStep() : options_.on_step](ConnectStep step) {
    if (then) then(step);
    if (step != ConnectStep::kHandshake && step != ConnectStep::kCopyAgent) return;
    const MutexLock lock(group->mutex);
    group->next_candidate =
        Deadline::After(step == ConnectStep::kCopyAgent ? kCopyLimit : kLoginWithin);
  };
  const Result<std::shared_ptr<LoopThread>> loop = Loop();
  Result<std::unique_ptr<NodeLink>> link =
      loop.ok() ? options_.to_relay(on_step, is_again)->Connect(target, deadline) : loop.error();
  std::shared_ptr<RelayClient> relay;
  std::string address;
  if (link.ok()) {
    address = (*link)->Address();
    relay = std::make_shared<RelayClient>(target.name, *std::move(link), *loop);
  }
  {
    const MutexLock lock(group->mutex);
    --group->num_candidates;
    if (relay && !(group->relay && group->relay->is_alive())) group->relay = relay;
    group->next_candidate = Deadline::After(milliseconds(0));
    group->changed.NotifyAll();
  }
  if (!relay) return link.error();
  const std::string nonce = MakeNonce();
  const std::string subject = "node '" + target.name + "' (" + target.host + "): the agent ";
  Result<std::unique_ptr<RunningProgram>> agent = relay->StartAgent(AgentArguments(role, nonce));
  if (!agent.ok())
    return Error{agent.error().code, subject + "cannot be started: " + agent.error().message};
  auto own = std::make_unique<ChildLink>(*std::move(agent), address, nonce);
  HelloScanner scanner(nonce);
  if (const Result<void> hello = own->AwaitHello(scanner, deadline); !hello.ok()) {
    return Error{hello.error().code, subject + hello.error().message +
                                         OutputClause(own->StderrTail(), scanner.Skipped())};
  }
  // Unless the relay is lost, the end of the program and its exit status are known.
  if (role.resumable || is_again) own->SetResumable([](int) { return false; });
  return std::unique_ptr<NodeLink>(
      std::make_unique<Link>(std::move(relay), std::move(own), std::move(address)));
}

Result<std::unique_ptr<NodeLink>> RelayTransport::Tree::ConnectBy(
    const std::shared_ptr<RelayClient>& relay, const AgentRole& role, const NodeTarget& target,
    Deadline deadline) {
  const bool is_again = role.kind == AgentRole::Kind::kResume;
  CommandTransport transport(options_.agent, options_.from_relay, role,
                             is_again ? OnStep() : options_.on_step, relay);
  transport.SetHint(options_.hint);
  DSL_TRY_ASSIGN(std::unique_ptr<NodeLink> link, transport.Connect(target, deadline));
  std::string address = link->Address();
  return std::unique_ptr<NodeLink>(
      std::make_unique<Link>(relay, std::move(link), std::move(address)));
}

RelayTransport::RelayTransport(Options options)
    : tree_(std::make_shared<Tree>(std::move(options))) {}

RelayTransport::~RelayTransport() = default;

Result<std::unique_ptr<NodeLink>> RelayTransport::Connect(const NodeTarget& target,
                                                          Deadline deadline) {
  return tree_->Connect(target, deadline);
}

}  // namespace dslaunch
