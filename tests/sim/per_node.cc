#include "tests/sim/per_node.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <variant>

#include "proto/wire/cause.h"
#include "tests/sim/front_end.h"

namespace dslaunch::sim {
namespace {

constexpr int64_t kLastCallMs = 10'000;
constexpr int64_t kConnectTimeoutMs = 20'000;  // limit for an agent's start
constexpr int64_t kFaultsWithinMs = 60'000;
constexpr int64_t kCutMs = 12'000;
constexpr int64_t kSilentMs = 30'000;    // time after which the kernel closes a silent connection
constexpr int64_t kEndSlackMs = 10'000;  // same value as in cli/per_node/per_node.cc

pb::AdmissionRequest RequestOf(const World& world, uint32_t node) {
  pb::AdmissionRequest request;
  request.set_magic(kPerNodeMagic);
  request.set_version("1");
  request.set_job("a job");
  request.set_host_name(world.NameOf(node));
  request.set_node_rank(node);
  request.set_min_nodes(static_cast<uint32_t>(world.job.plan.min_nodes));
  request.set_max_nodes(world.job.size());
  request.set_slots(world.job.node(node).slots());
  return request;
}

AdmissionOptions OptionsOfAdmission(const World& world) {
  AdmissionOptions options;
  options.own = RequestOf(world, 0);
  for (uint32_t node = 0; node < world.job.size(); ++node) {
    options.names.push_back(world.NameOf(node));
    options.slots.push_back(static_cast<int>(world.job.node(node).slots()));
  }
  options.join_timeout = milliseconds(world.job.join_timeout_ms);
  options.last_call = milliseconds(kLastCallMs);
  options.takes_late =
      world.job.plan.min_nodes < world.job.plan.max_nodes || world.job.policy().max_restarts() > 0;
  return options;
}

MemberCoreOptions OptionsOfMember(const World& world, uint32_t node) {
  const pb::Timeouts& timeouts = world.job.timeouts();
  MemberCoreOptions options;
  options.host = "node0";
  options.port = 29'500;
  options.join_timeout = milliseconds(world.job.join_timeout_ms);
  options.end_timeout = milliseconds(timeouts.grace_ms() + timeouts.teardown_ms() +
                                     2 * timeouts.dead_ms() + kEndSlackMs);
  options.request = RequestOf(world, node);
  options.shown.shown_ranks = {true, {}};
  return options;
}

}  // namespace

// --- A node's command ---

Member::Member(PerNode& per_node, World& world, size_t number, uint32_t node)
    : per_node_(per_node),
      world_(world),
      number_(number),
      node_(node),
      core_(OptionsOfMember(world, node), Now()) {}

Clock::time_point Member::Now() const {
  return world_.timeline.NowOn(world_.machines[node_].clock);
}
std::string Member::name() const { return world_.NameOf(node_) + " (its command)"; }

void Member::Carry(MemberActions actions) {
  for (MemberAction& action : actions) {
    if (process_.gone) return;
    std::visit([this](auto& one) { Do(one); }, action);
  }
}

void Member::Do(member_action::Log& line) {
  world_.Log(name(), [&] { return std::move(line.text); });
}

void Member::Do(member_action::Dial&) {
  world_.timeline.After(world_.random.Between(5, 500), &process_, [this] {
    std::optional<DialFailure> failure;
    if (!per_node_.Accept(*this)) failure = {DialFailure::Kind::kUnreachable, "connection refused"};
    Carry(core_.OnDialed(failure, Now()));
  });
}

void Member::Do(member_action::Send& send) { per_node_.Receive(*this, send.message); }

void Member::Do(member_action::Disconnect&) { per_node_.OnClosed(*this); }

void Member::Do(member_action::StartAgent&) {
  world_.timeline.After(world_.random.Between(50, 1'000), &process_, [this] {
    if (world_.random.OneIn(30))
      return Carry(core_.OnAgentStarted(
          Error{ExitCode::kUnavailable, name() + ": cannot start its agent"}, Now()));
    pb::OwnPart own;
    own.mutable_ranks()->mutable_program()->add_argv("python3");
    own.set_slots(world_.job.node(node_).slots());
    world_.incarnations.push_back(
        std::make_unique<NodeIncarnation>(world_, world_.incarnations.size(), node_, own));
    agent_ = world_.incarnations.back().get();
    serves_ = false;
    Carry(core_.OnAgentStarted({}, Now()));
  });
}

void Member::CloseAgentsInput() {
  world_.timeline.Do(agent_->supervisor(), [agent = agent_] { agent->OnFrontEndEof(); });
}

void Member::Do(member_action::CloseStream&) { agent_->ResetLink(); }

void Member::Do(member_action::RenewLease&) {
  world_.timeline.Do(agent_->threads(), [agent = agent_, sent = world_.timeline.now()] {
    agent->Renew(std::nullopt, sent);
  });
}

void Member::Do(member_action::StopAgent& stop) {
  world_.timeline.Do(agent_->loop(), [agent = agent_, kill_now = stop.kill_now,
                                      cause = std::make_shared<pb::Cause>(std::move(stop.cause))] {
    agent->Stop(*cause, kill_now);
  });
}

void Member::Do(member_action::AwaitAgentEnd& await) {
  AwaitAgentEndBy(world_.timeline.now() + await.limit.count());
}

void Member::AwaitAgentEndBy(int64_t deadline) {
  const bool has_ended = agent_->is_over();
  if (!has_ended && world_.bug == PlantedBug::kEarlyCommandEnd)
    return Carry(core_.OnAgentEnded("", Now()));
  if (!has_ended && world_.timeline.now() < deadline)
    return world_.timeline.After(50, &process_, [this, deadline] { AwaitAgentEndBy(deadline); });
  if (has_ended) agent_ = nullptr;
  Carry(core_.OnAgentEnded(has_ended ? "" : "its supervisor did not end in time", Now()));
}

void Member::Do(member_action::SetTimer& set) {
  const auto timer = static_cast<size_t>(set.timer);
  const uint64_t number = ++timer_numbers_[timer];
  const int64_t delay = std::chrono::ceil<milliseconds>(set.when - Now()).count();
  world_.timeline.After(std::max<int64_t>(delay, 0), &process_, [this, number, which = set.timer] {
    if (number == timer_numbers_[static_cast<size_t>(which)])
      Carry(core_.OnTimer(which, /*reader_makes_progress=*/false, Now()));
  });
}

void Member::Do(member_action::End& end) {
  exit_code_ = end.exit_code;
  per_node_.OnEnd(*this, end);
  Kill();
}

void Member::OnEvent(const NodeIncarnation& agent, const pb::NodeEvent& event) {
  if (&agent != agent_ || !serves_) return;
  Carry(core_.OnEvent(event, Now()));
  if (event.has_done()) core_.OnShown();
}

// Kills the command. Its descriptors are closed: the connection to node 0 and the agent's stream.
void Member::Kill() {
  if (std::exchange(process_.gone, true)) return;
  per_node_.OnClosed(*this);
  if (agent_ != nullptr) agent_->ResetLink();
}

// --- Node 0's side ---

PerNode::PerNode(World& world)
    : world_(world),
      admission_(OptionsOfAdmission(world), world.timeline.NowOn(world.front_end_machine.clock)) {}

void PerNode::Start() {
  for (uint32_t node = 1; node < world_.job.size(); ++node) {
    const int64_t late = world_.random.OneIn(6) ? world_.random.Between(10'000, 60'000)
                                                : world_.random.Between(0, 5'000);
    world_.timeline.At(late, nullptr, [this, node] { Launch(node); });
  }
  Reconsider();
}

void PerNode::Launch(uint32_t node) {
  if (world_.machines[node].off) return;
  members_.push_back(std::make_unique<Member>(*this, world_, members_.size(), node));
  members_.back()->Start();
}

void PerNode::Reconsider() {
  if (has_started_ || !listens_) return;
  using Verdict = Admission::Decision::Verdict;
  const Clock::time_point now = world_.timeline.NowOn(world_.front_end_machine.clock);
  const Admission::Decision decision = admission_.Decide(now);
  if (decision.verdict == Verdict::kWait) {
    const int64_t delay = std::chrono::ceil<milliseconds>(decision.wake - now).count();
    return world_.timeline.After(std::max<int64_t>(delay, 1), &world_.front_end->process(),
                                 [this] { Reconsider(); });
  }
  world_.Log("front end", [&] { return decision.reason; });
  if (decision.verdict == Verdict::kStart) {
    has_started_ = true;
    admission_.Start();
    return world_.front_end->Start();
  }
  while (!connections_.empty())
    Refuse(*connections_.begin()->first, Error{ExitCode::kTimedOut, decision.reason});
  world_.front_end->Crash();
}

bool PerNode::Accept(Member& member) {
  const Place self = world_.network.front_end();
  if (!listens_ || world_.front_end->is_over() || world_.network.IsCut(member.node(), self) ||
      world_.network.IsCut(self, member.node()))
    return false;
  if (connections_.contains(&member))
    Drop(member);  // the end of the old connection has not arrived yet
  connections_[&member].id = next_peer_++;
  return true;
}

void PerNode::Send(Member& member, const pb::NodeMessage& message) {
  const auto connection = connections_.find(&member);
  if (connection == connections_.end()) return;
  const int64_t arrival =
      world_.network.Send(connection->second.down, world_.network.front_end(), member.node());
  world_.timeline.At(
      arrival, &member.process(),
      [&member, sent = std::make_shared<pb::NodeMessage>(message)] { member.OnMessage(*sent); });
}

void PerNode::Refuse(Member& member, const Error& error) {
  pb::NodeMessage message;
  message.mutable_refused()->set_exit_code(ToInt(error.code));
  message.mutable_refused()->set_message(error.message);
  Send(member, message);
  Drop(member);
}

void PerNode::Drop(Member& member) {
  Connection connection = std::move(connections_[&member]);
  connections_.erase(&member);
  admission_.Leave(connection.id);
  Answer(connection, nullptr);
}

void PerNode::Answer(Connection& connection, NodeIncarnation* agent) {
  if (connection.then) std::exchange(connection.then, nullptr)(agent);
}

void PerNode::Receive(Member& member, const pb::NodeMessage& message) {
  const auto sender = connections_.find(&member);
  if (sender == connections_.end()) return;
  const PeerId id = sender->second.id;
  const int64_t arrival =
      world_.network.Send(sender->second.up, member.node(), world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this, &member, id, agent = member.agent(),
                      sent = std::make_shared<pb::NodeMessage>(message)] {
                       const auto found = connections_.find(&member);
                       if (found == connections_.end() || found->second.id != id) return;
                       Connection& connection = found->second;
                       if (sent->has_request()) {
                         const Clock::time_point now =
                             world_.timeline.NowOn(world_.front_end_machine.clock);
                         const auto refused = admission_.Admit(id, sent->request(),
                                                               world_.NameOf(member.node()), now);
                         if (refused) return Refuse(member, *refused);
                         connection.has_joined = true;
                         joined_late_ += has_started_;
                         Reconsider();
                       } else if (sent->has_agent_up()) {
                         Answer(connection, agent);
                       } else if (sent->has_agent_failed() || sent->has_agent_ended()) {
                         Answer(connection, nullptr);
                       }
                     });
}

void PerNode::OnClosed(Member& member) {
  const auto found = connections_.find(&member);
  if (found == connections_.end()) return;
  const int64_t arrival =
      world_.network.Send(found->second.up, member.node(), world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(), [this, &member, id = found->second.id] {
    const auto closed = connections_.find(&member);
    if (closed == connections_.end() || closed->second.id != id) return;
    Drop(member);
    Reconsider();
  });
}

Member* PerNode::MemberAt(uint32_t node) {
  for (auto& [member, connection] : connections_) {
    if (connection.has_joined && member->node() == node) return member;
  }
  return nullptr;
}

void PerNode::Connect(uint32_t node, std::function<void(NodeIncarnation*)> then) {
  Member* const member = MemberAt(node);
  if (member == nullptr || connections_[member].then) return then(nullptr);
  Connection& connection = connections_[member];
  connection.then = std::move(then);
  pb::NodeMessage message;
  message.mutable_accepted()->set_name(world_.NameOf(node));
  message.mutable_accepted()->set_front_end("node0");
  Send(*member, message);
  world_.timeline.After(kConnectTimeoutMs, &world_.front_end->process(),
                        [this, member, id = connection.id] {
                          const auto found = connections_.find(member);
                          if (found != connections_.end() && found->second.id == id)
                            Answer(found->second, nullptr);
                        });
}

void PerNode::EndStream(const NodeIncarnation& agent, bool abort) {
  for (auto& [member, connection] : connections_) {
    if (member->agent() != &agent) continue;
    pb::NodeMessage message;
    message.mutable_stream_end()->set_abort(abort);
    return Send(*member, message);
  }
}

void PerNode::OnFrontEndEnd(std::optional<int> exit_code) {
  listens_ = false;
  job_exit_code_ = exit_code;
  pb::NodeMessage message;
  if (exit_code) {
    message.mutable_job_ended()->set_exit_code(*exit_code);
    message.mutable_job_ended()->set_message("the job has ended");
  }
  for (auto& [member, connection] : connections_) {
    if (exit_code && connection.has_joined) Send(*member, message);
    const int64_t arrival =
        world_.network.Send(connection.down, world_.network.front_end(), member->node());
    world_.timeline.At(arrival, &member->process(), [closed = member] { closed->OnClosed(); });
  }
  connections_.clear();
}

void PerNode::OnEvent(const NodeIncarnation& agent, const pb::NodeEvent& event) {
  Member* const member = NewestOf(agent.node());
  if (member == nullptr || member->agent() != &agent) return;
  world_.timeline.After(world_.random.Between(0, 20), &member->process(),
                        [member, &agent, sent = std::make_shared<pb::NodeEvent>(event)] {
                          member->OnEvent(agent, *sent);
                        });
}

// --- The ends ---

void PerNode::OnEnd(Member& member, const member_action::End& end) {
  Invariants& invariants = world_.invariants;
  world_.Log(world_.NameOf(member.node()) + " (its command)",
             [&] { return "exits with " + std::to_string(end.exit_code); });
  if (end.exit_code == 0 && job_exit_code_ != 0)
    invariants.Fail("the command of " + world_.NameOf(member.node()) +
                    " exits with 0, but the job did not succeed");
  const bool is_served = connections_.contains(&member) && world_.front_end->takes_nodes();
  if (end.exit_code == ToInt(ExitCode::kTimedOut) && is_served)
    invariants.Fail("the command of " + world_.NameOf(member.node()) +
                    " does not wait for the end of the job, which continues");
  if (end.text.find("no processes are left") != std::string::npos && member.agent() != nullptr)
    invariants.Fail("the command of " + world_.NameOf(member.node()) +
                    " reports an empty node, but its agent runs");
}

bool PerNode::is_over() const {
  return std::ranges::all_of(members_, [](const auto& member) { return member->process().gone; });
}

// --- Faults ---

Member* PerNode::NewestOf(uint32_t node) {
  const auto found = std::find_if(members_.rbegin(), members_.rend(),
                                  [&](const auto& member) { return member->node() == node; });
  return found == members_.rend() ? nullptr : found->get();
}

void PerNode::Break(Member& member) {
  const auto found = connections_.find(&member);
  if (found == connections_.end()) return;
  const int64_t arrival =
      world_.network.Send(found->second.down, world_.network.front_end(), member.node());
  world_.timeline.At(arrival, &member.process(), [&member] { member.OnClosed(); });
  if (member.agent() != nullptr) member.agent()->ResetLink();
  OnClosed(member);
}

void PerNode::LosePower(Member& member) {
  world_.machines[member.node()].off = true;
  for (const auto& incarnation : world_.incarnations) {
    if (incarnation->node() == member.node()) incarnation->LosePower();
  }
  member.process().gone = true;
  world_.timeline.After(kSilentMs, nullptr, [this, &member] {
    OnClosed(member);
    if (member.agent() != nullptr)
      world_.front_end->OnLinkClosed(*member.agent(), /*supervisor_ended=*/false);
  });
}

void PerNode::Fault() {
  Random& random = world_.random;
  const auto node = static_cast<uint32_t>(random.Between(1, world_.job.size() - 1));
  Member* const member = NewestOf(node);
  const auto log = [&](const std::string& what) {
    world_.Log("FAULT", [&] { return world_.NameOf(node) + ": " + what; });
  };
  if (member == nullptr || member->process().gone) return;
  switch (random.Between(0, 9)) {
    case 0:
      log("its command is killed");
      return member->Kill();
    case 1:
      log("its command is killed, and started again");
      member->Kill();
      return world_.timeline.After(random.Between(500, 20'000), nullptr,
                                   [this, node] { Launch(node); });
    case 2:
      log("its command gets SIGTERM");
      return world_.timeline.Do(member->process(), [member] { member->Interrupt(SIGTERM); });
    case 3:
      log("the user interrupts its command");
      return world_.timeline.Do(member->process(), [member] { member->Interrupt(SIGINT); });
    case 4:
      log("its connection to node 0 breaks");
      return Break(*member);
    case 5:
      log("its agent is killed");
      if (member->agent() != nullptr) member->agent()->KillAgent();
      return;
    case 6:
      log("its supervisor is killed");
      if (member->agent() != nullptr) member->agent()->KillSupervisor();
      return;
    case 7:
      log("is cut off from node 0's command");
      world_.network.Cut(node, world_.network.front_end(),
                         world_.timeline.now() + random.Between(500, kCutMs));
      world_.network.Cut(world_.network.front_end(), node,
                         world_.timeline.now() + random.Between(500, kCutMs));
      return;
    case 8:
      log("loses power");
      return LosePower(*member);
    default:
      if (!random.OneIn(3)) return;
      log("node 0's command is killed");
      if (!world_.front_end->is_over()) world_.front_end->Crash();
  }
}

void PerNode::PlanFaults() {
  for (int64_t i = 0; i < world_.job.faults; ++i)
    world_.timeline.At(world_.random.Between(0, kFaultsWithinMs), nullptr, [this] { Fault(); });
}

}  // namespace dslaunch::sim
