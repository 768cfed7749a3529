#include "tests/fuzz/hostile_messages.h"

#include <google/protobuf/stubs/logging.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "agent/accelerators/visible_devices.h"
#include "agent/core/attempt_workers.h"
#include "agent/logs/rank_selection.h"
#include "agent/mpi/pmix_helper.h"
#include "agent/node/rank_link_core.h"
#include "agent/node/worker_specs.h"
#include "agent/pmix/exchange.h"
#include "agent/pmix/pmi_core.h"
#include "agent/supervisor/supervisor_core.h"
#include "agent/supervisor/supervisor_workers.h"
#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "cli/commands/doctor_report.h"
#include "cli/commands/job_view.h"
#include "cli/core/event_text.h"
#include "cli/core/job_state.h"
#include "cli/core/outcome.h"
#include "cli/core/session_core.h"
#include "cli/output/summary_view.h"
#include "cli/per_node/per_node_admission.h"
#include "cli/per_node/per_node_peer.h"
#include "cli/session/event_gate.h"
#include "cli/session/event_log.h"
#include "cli/session/job_summary.h"
#include "cli/session/summary_json.h"
#include "proto/wire/cause.h"
#include "proto/wire/framed_socket.h"
#include "proto/wire/node_list.h"
#include "proto/wire/node_set.h"
#include "proto/wire/peer_check.h"
#include "proto/wire/rank_stacks.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/first_cause.h"
#include "rendezvous/hang.h"
#include "rendezvous/quorum.h"
#include "rendezvous/restart_policy.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/requirement.h"
#include "tests/support/pmix_job.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

using std::chrono::seconds;

// Returns a message in the wire format; nullopt if the bytes are not a valid message.
template <class Message>
std::optional<Message> TakeMessage(Input& input) {
  // Without this, protobuf would log for each message that its texts are not UTF-8.
  [[maybe_unused]] static auto* const former = google::protobuf::SetLogHandler(nullptr);
  const std::string_view bytes = input.Text();
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  return message;
}

pb::Cause TakeCause(Input& input) {
  pb::Cause cause;
  cause.set_kind(static_cast<pb::Cause::Kind>(input.Below(11)));  // includes one invalid value
  cause.set_node_index(input.Number32());
  cause.set_rank(static_cast<int32_t>(input.Number32()));
  cause.set_exit_code(static_cast<int32_t>(input.Number32()));
  cause.set_victim(input.Flag());
  if (input.Flag()) cause.set_message(std::string(input.Text()));
  return cause;
}

std::vector<pb::Node> TakeNodes(Input& input) {
  std::vector<pb::Node> nodes(1 + input.Below(4));
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].set_name("node" + std::to_string(i));
    nodes[i].set_slots(static_cast<uint32_t>(1 + input.Below(3)));
    nodes[i].set_spare(i > 0 && input.Below(4) == 1);
  }
  return nodes;
}

// Returns a subset of the indexes below `count`.
std::vector<uint32_t> TakeSome(Input& input, size_t count) {
  std::vector<uint32_t> some;
  const size_t mask = input.Byte();
  for (uint32_t i = 0; i < count; ++i) {
    if ((mask >> i & 1) == 1) some.push_back(i);
  }
  return some;
}

pb::Policy TakePolicy(Input& input, size_t nodes) {
  pb::Policy policy;
  policy.set_max_restarts(static_cast<uint32_t>(input.Below(4)));
  policy.set_backoff_ms(static_cast<uint32_t>(input.Below(4) * 1'000));
  policy.set_max_backoff_ms(static_cast<uint32_t>(input.Below(4) * 2'000));
  policy.set_min_nodes(static_cast<uint32_t>(input.Below(nodes + 1)));
  policy.set_max_nodes(static_cast<uint32_t>(input.Below(nodes + 1)));
  policy.set_node_failures(static_cast<uint32_t>(input.Below(3)));
  policy.set_cooldown_ms(static_cast<uint32_t>(input.Below(3) * 10'000));
  policy.set_on_join(static_cast<pb::Policy::OnJoin>(input.Below(2)));
  policy.set_on_hang(static_cast<pb::Policy::OnHang>(input.Below(3)));
  policy.set_hang_ms(static_cast<uint32_t>(input.Below(3) * 5'000));
  policy.set_standstill_ms(policy.hang_ms());
  policy.set_setup_hang_ms(2 * policy.hang_ms());
  return policy;
}

// A job's rendezvous, and agents that send arbitrary messages to it.
class Rendezvous {
 public:
  explicit Rendezvous(Input& input) : input_(input), options_(MakeOptions(input)) {
    coordinator_ = std::make_unique<Coordinator>(options_, now_);
  }

  // Handles the whole input. Returns whether ranks were ever assigned.
  bool Run() {
    for (int event = 0; event < kMaxEvents && !input_.empty(); ++event) {
      switch (input_.Below(8)) {
        case 0: {
          static constexpr int kStepsMs[] = {100, 500, 1'000, 2'500, 7'000};
          Pass(kStepsMs[input_.Below(std::size(kStepsMs))]);
          break;
        }
        case 1:
          Disconnect(input_.Below(kSessions));
          break;
        default:
          SendMessage(input_.Below(kSessions));
      }
    }
    End();
    return !assigned_.empty();
  }

 private:
  using Phase = Coordinator::Phase;

  static constexpr int kMaxEvents = 300;
  static constexpr size_t kSessions = 6;       // number of simultaneous sessions
  static constexpr int kLongestEnd_s = 1'000;  // much longer than all deadlines together

  static CoordinatorOptions MakeOptions(Input& input) {
    CoordinatorOptions options;
    options.job_id = "job";
    options.nodes = TakeNodes(input);
    options.policy = TakePolicy(input, options.nodes.size());
    options.may_share_machine = input.Flag();
    options.rendezvous_node = static_cast<uint32_t>(input.Below(options.nodes.size()));
    options.absent_nodes = TakeSome(input, options.nodes.size());
    std::erase(options.absent_nodes, options.rendezvous_node);
    if (input.Below(4) == 1) {  // simulates an earlier coordinator
      options.attempt = 3;
      options.restarts = 1;
      options.attempt_ended_by.set_kind(pb::Cause::NODE_LOST);
      options.attempt_ended_by.set_rank(-1);
      options.attempt_ended_by.set_exit_code(69);
    }
    options.timeouts.set_grace_ms(2'000);
    options.timeouts.set_join_ms(20'000);
    options.timeouts.set_ready_ms(20'000);
    options.timeouts.set_teardown_ms(5'000);
    options.timeouts.set_heartbeat_ms(1'000);
    options.timeouts.set_suspect_ms(3'000);
    options.timeouts.set_dead_ms(6'000);
    return options;
  }

  void Pass(int ms) {
    now_ += milliseconds(ms);
    Take(coordinator_->OnTick(now_));
  }

  void Disconnect(size_t place) {
    const SessionId session = std::exchange(sessions_[place], next_session_++);
    ended_.erase(session);
    Take(coordinator_->OnDisconnect(session, now_));
  }

  void SendMessage(size_t place) {
    const SessionId session = sessions_[place];
    const pb::AgentMessage message = TakeAgentMessage();
    if (ended_.contains(session))
      return Disconnect(place);  // the server no longer reads an ended session
    if (message.has_finished() && message.attempt() == coordinator_->attempt())
      finished_.insert(session);
    Take(coordinator_->OnMessage(session, message, now_));
  }

  pb::AgentMessage TakeAgentMessage() {
    pb::AgentMessage message;
    message.set_job_id(input_.Below(16) == 15 ? "another" : "job");
    message.set_node_index(static_cast<uint32_t>(input_.Below(options_.nodes.size() + 1)));
    const size_t age = input_.Below(4);
    message.set_attempt(age < 2    ? coordinator_->attempt()
                        : age == 2 ? coordinator_->attempt() - 1
                                   : input_.Number());
    switch (input_.Below(9)) {
      case 0:
        FillJoin(message);
        break;
      case 1:
        message.mutable_ready();
        break;
      case 2: {
        pb::WorkerFailed& failed = *message.mutable_worker_failed();
        *failed.mutable_cause() = TakeCause(input_);
        failed.set_age_us(input_.Number());
        failed.set_rtt_us(input_.Number());
        break;
      }
      case 3:
        message.mutable_finished();
        break;
      case 4:
        *message.mutable_stop()->mutable_cause() = TakeCause(input_);
        break;
      case 5:
        switch (message.mutable_torn_down(); input_.Below(4)) {
          case 1:
            message.mutable_torn_down()->add_left()->set_pid(7);
            break;
          case 2:
            if (auto stacks = TakeMessage<pb::RankStacks>(input_))
              *message.mutable_inspected()->mutable_stacks() = *std::move(stacks);
            message.mutable_inspected()->set_look(1 + input_.Below(4));
            break;
          default:
            break;
        }
        break;
      case 6:
        FillHeartbeat(*message.mutable_heartbeat());
        break;
      case 7:
        message.mutable_drained()->set_master_port(input_.Number32());
        if (input_.Below(4) == 1) message.mutable_drained()->add_left()->set_pid(7);
        break;
      default:
        if (auto any = TakeMessage<pb::AgentMessage>(input_)) message.MergeFrom(*any);
    }
    return message;
  }

  void FillJoin(pb::AgentMessage& message) {
    const uint32_t index = message.node_index();
    pb::Join& join = *message.mutable_join();
    const bool known = index < options_.nodes.size();
    join.set_slots(known && input_.Below(8) != 7 ? options_.nodes[index].slots()
                                                 : input_.Number32());
    join.set_identity(input_.Below(4) == 3 ? "machine" : "machine" + std::to_string(index));
    join.set_master_port(input_.Number32());
    if (index != options_.rendezvous_node) {
      join.set_reached_at("10.0.0.1");
      join.set_address("10.0.0.2");
    }
  }

  void FillHeartbeat(pb::Heartbeat& heartbeat) {
    heartbeat.set_sent_us(input_.Number());
    for (size_t count = input_.Below(4); count > 0; --count) {
      pb::RankProgress& rank = *heartbeat.add_ranks();
      rank.set_rank(input_.Number32());
      rank.set_step(input_.Number());
      rank.set_since_us(input_.Number());
      rank.set_median_step_us(input_.Number());
      rank.set_median_compute_us(input_.Number());
      rank.set_ended(input_.Flag());
      pb::Stillness& stillness = *heartbeat.add_stillness();
      stillness.set_rank(rank.rank());
      stillness.set_still_us(rank.since_us());
      stillness.set_looks(rank.rank() + 6);
      stillness.set_readable(rank.step() % 8 != 7);
      stillness.set_connected(rank.step() % 2 == 0);
      stillness.set_ended(rank.ended());
      stillness.set_stopped(rank.step() % 16 == 15);
    }
  }

  // Disconnects all agents. The job must then end.
  void End() {
    for (size_t place = 0; place < kSessions; ++place) Disconnect(place);
    for (int second = 0; coordinator_->phase() != Phase::kCompleted; ++second) {
      Require(second < kLongestEnd_s, "a job does not end");
      Pass(1'000);
    }
  }

  void Take(const std::vector<Outgoing>& messages) {
    Require(coordinator_->attempt() >= attempt_, "an attempt is older than the last");
    if (coordinator_->attempt() != std::exchange(attempt_, coordinator_->attempt()))
      finished_.clear();
    Require(phase_ != Phase::kCompleted || coordinator_->phase() == Phase::kCompleted,
            "a closed job goes on");
    Require(phase_ != Phase::kStopping || coordinator_->phase() >= Phase::kStopping,
            "a job that ends goes on");
    phase_ = coordinator_->phase();
    for (const Outgoing& out : messages) {
      Require(out.message.attempt() <= attempt_, "a message is of an attempt that never was");
      Require(!ended_.contains(out.session), "something follows the end of a session");
      if (out.end_session) ended_.insert(out.session);
      if (out.message.has_assignment()) OnAssignment(out);
      if (out.message.has_stop() && out.message.stop().cause().kind() == pb::Cause::NONE)
        RequireSuccess();
    }
  }

  void OnAssignment(const Outgoing& out) {
    const pb::Assignment& assignment = out.message.assignment();
    Require(assignment.node_rank() < assignment.num_nodes() &&
                assignment.num_nodes() == IndexesOf(assignment.members()).size(),
            "a node is not among the nodes");
    const uint32_t index = IndexesOf(assignment.members())[assignment.node_rank()];
    Require(index < options_.nodes.size(), "a node is not one of the job");
    const uint32_t slots = options_.nodes[index].slots();
    Require(assignment.first_rank() + slots <= assignment.world_size(), "a rank is none");
    for (uint32_t i = 0; i < slots; ++i) {
      Require(assigned_.emplace(out.message.attempt(), assignment.first_rank() + i).second,
              "a rank starts twice in an attempt");
    }
    in_attempt_[out.message.attempt()].insert(out.session);
  }

  void RequireSuccess() const {
    const auto members = in_attempt_.find(attempt_);
    Require(members != in_attempt_.end() && std::ranges::includes(finished_, members->second),
            "a job ends well though not all of its ranks did");
  }

  Input& input_;
  const CoordinatorOptions options_;
  std::unique_ptr<Coordinator> coordinator_;
  Clock::time_point now_ = Clock::time_point(seconds(1'000));
  SessionId sessions_[kSessions] = {1, 2, 3, 4, 5, 6};
  SessionId next_session_ = kSessions + 1;
  uint64_t attempt_ = 0;
  Phase phase_ = Phase::kJoining;
  std::set<SessionId> ended_;     // sessions that the rendezvous has ended
  std::set<SessionId> finished_;  // sessions that have sent `finished` in this attempt
  std::set<std::pair<uint64_t, uint32_t>> assigned_;
  std::map<uint64_t, std::set<SessionId>> in_attempt_;
};

// Returns the plan of a job that uses the last of three nodes only as a spare.
LaunchPlan SomePlan() {
  LaunchPlan plan;
  plan.launcher = Launcher::kSsh;
  for (int i = 0; i < 3; ++i) {
    Host node;
    node.name = node.host = "node" + std::to_string(i);
    node.slots = 2;
    node.spare = i == 2;
    plan.nodes.push_back(std::move(node));
  }
  plan.min_nodes = 1;
  plan.max_nodes = 2;
  plan.ranks = NumberRanksOf(plan.nodes);
  return plan;
}

void RequireJsonObject(const std::string& json) {
  Require(nlohmann::json::parse(json).is_object(), "JSON is none");
}

void RequireSanitizedLines(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    Require(SanitizeForTerminal(line) == line, "a line could steer a terminal");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

bool CoordinatesAgents(const std::string& bytes) {
  Input input(bytes);
  return Rendezvous(input).Run();
}

bool DecidesQuorum(const std::string& bytes) {
  Input input(bytes);
  QuorumOptions options;
  options.nodes = TakeNodes(input);
  options.may_share_machine = input.Flag();
  options.rendezvous_node = static_cast<uint32_t>(input.Below(options.nodes.size()));
  options.min_nodes = input.Number32();
  options.max_nodes = input.Number32();
  options.absent = TakeSome(input, options.nodes.size());
  options.set_aside = TakeSome(input, options.nodes.size());
  const Clock::time_point now(seconds(1'000));
  options.join_deadline = now + seconds(input.Flag() ? 1 : 0);
  std::vector<Member> members;
  for (const uint32_t index : TakeSome(input, options.nodes.size())) {
    members.push_back({index, options.nodes[index].slots(), std::string(input.Text()), "10.0.0.1",
                       input.Number32(), "10.0.0.2"});
  }
  const QuorumDecision decision = DecideQuorum(now, members, options);
  Require(!decision.reason.empty(), "a decision has no reason");
  if (decision.verdict == QuorumDecision::Verdict::kFail) {
    Require(decision.cause.kind() != pb::Cause::NONE && decision.cause.exit_code() != 0,
            "a job fails and ends well");
  }
  if (decision.verdict != QuorumDecision::Verdict::kForm) return false;
  const NodeBounds bounds = BoundsOf(options.nodes, options.min_nodes, options.max_nodes);
  Require(decision.members.size() >= bounds.min && decision.members.size() <= bounds.max &&
              !decision.members.empty(),
          "too few or too many nodes get ranks");
  const RankNumbering ranks = AssignRanks(decision.members).ranks;
  uint32_t next = 0;
  for (const RankBlock& block : ranks.blocks) {
    Require(block.first_rank == next, "ranks have a hole or overlap");
    next += block.slots;
  }
  Require(next == ranks.world_size, "the world is larger than its nodes");
  return true;
}

bool DecidesRestart(const std::string& bytes) {
  Input input(bytes);
  const std::vector<pb::Node> nodes = TakeNodes(input);
  pb::Policy policy = TakePolicy(input, nodes.size());
  policy.set_backoff_ms(input.Number32());
  policy.set_max_backoff_ms(input.Number32());
  Clock::time_point now(seconds(1'000));
  std::vector<EndedAttempt> ended;
  std::vector<FailureReport> reports;
  std::vector<RankSteps> ranks;
  for (size_t count = 1 + input.Below(6); count > 0; --count) {
    now += milliseconds(input.Below(4) * 3'000);
    pb::WorkerFailed failed;
    *failed.mutable_cause() = TakeCause(input);
    failed.mutable_cause()->set_node_index(static_cast<uint32_t>(input.Below(nodes.size())));
    failed.set_age_us(input.Number());
    failed.set_rtt_us(input.Number());
    reports.push_back(ReportOf(failed, failed.cause().node_index(), now));
    Require(reports.back().earliest <= reports.back().latest && reports.back().latest <= now,
            "a failure happens before itself, or later");
    ended.push_back({failed.cause(), now, {}});
    if (input.Flag()) ended.back().best_step = input.Number();
    RankSteps rank;
    rank.rank = input.Number32();
    rank.step = input.Number();
    rank.step_at = now;
    rank.steps_made = input.Number();
    rank.median_step = ReportedMicroseconds(input.Number());
    rank.median_compute = ReportedMicroseconds(input.Number());
    rank.ended = input.Flag();
    ranks.push_back(rank);
  }
  const RestartDecision decision = DecideRestart(now, ended.back().cause, ended, policy, nodes);
  Require(!decision.reason.empty(), "a decision has no reason");
  Require(!decision.restart ||
              (policy.max_restarts() > 0 && CountFailed(ended) <= policy.max_restarts()),
          "there is a restart too many");
  Require(decision.delay.count() >= 0 &&
              decision.delay.count() <= std::max(policy.backoff_ms(), policy.max_backoff_ms()),
          "a restart takes too long");
  for (const uint32_t node : decision.set_aside)
    Require(node < nodes.size(), "a node that is not there is set aside");
  const FirstCause first = ChooseFirstCause(reports);
  Require(!first.reason.empty() && std::ranges::is_sorted(first.victims),
          "a first cause has no reason");
  const HangDecision hang = DecideHang(now, ranks, {milliseconds(policy.hang_ms())});
  Require((hang.kind == HangDecision::Kind::kNone) == hang.ranks.empty() &&
              hang.ranks.empty() == hang.reason.empty(),
          "something hangs and is not named");
  return decision.restart;
}

bool AdmitsPeers(const std::string& bytes) {
  Input input(bytes);
  const size_t nodes = 1 + input.Below(4);
  AdmissionOptions options;
  options.own.set_version("1");
  options.own.set_job("none");
  options.own.set_min_nodes(static_cast<uint32_t>(1 + input.Below(nodes)));
  options.own.set_max_nodes(static_cast<uint32_t>(nodes));
  options.own.set_slots(2);
  options.own.mutable_program()->set_name("train.py");
  options.takes_late = input.Flag();
  const bool has_hostfile = input.Flag();
  for (size_t i = 0; i < nodes; ++i) {
    options.names.push_back("node" + std::to_string(i));
    if (has_hostfile) options.slots.push_back(static_cast<int>(1 + i % 2));
  }
  Clock::time_point now(seconds(1'000));
  const pb::AdmissionRequest own = options.own;
  Admission admission(std::move(options), now);
  std::set<PeerId> peers;
  bool started = false;
  for (PeerId next = 1; !input.empty();) {
    now += seconds(input.Below(4) * 20);
    switch (input.Below(4)) {
      case 0:
        if (peers.empty()) break;
        admission.Leave(*peers.begin());
        peers.erase(peers.begin());
        break;
      case 1: {
        const Admission::Decision decision = admission.Decide(now);
        Require(!decision.reason.empty(), "a decision has no reason");
        if (started || decision.verdict != Admission::Decision::Verdict::kStart) break;
        Require(admission.present() >= own.min_nodes(), "a job starts with too few nodes");
        admission.Start();
        started = true;
        break;
      }
      default: {
        pb::AdmissionRequest request = own;
        request.set_slots(input.Below(8) == 7 ? input.Number32()
                                              : static_cast<uint32_t>(1 + input.Below(2)));
        if (input.Flag()) request.set_node_rank(input.Number32());
        if (input.Below(8) == 7) {
          if (const auto any = TakeMessage<pb::AdmissionRequest>(input)) request.MergeFrom(*any);
        }
        const PeerId peer = next++;
        const std::optional<Error> refused =
            admission.Admit(peer, request, "there (10.0.0.2)", now);
        if (refused) {
          Require(refused->code == ExitCode::kUsage || refused->code == ExitCode::kUnavailable,
                  "a peer is refused for no reason");
          RequireOneLine(refused->message);
        } else {
          peers.insert(peer);
        }
      }
    }
    Require(admission.present() == 1 + peers.size() && admission.present() <= nodes,
            "peers are lost or too many");
    std::set<size_t> taken = {0};
    for (const PeerId peer : peers) {
      const std::optional<size_t> place = admission.PlaceOf(peer);
      Require(place || !started, "a peer has no place");
      if (!place) continue;
      Require(*place < nodes && taken.insert(*place).second && admission.PeerAt(*place) == peer,
              "a place is taken twice");
    }
    for (size_t place = 0; started && place < nodes; ++place) {
      Require(admission.SlotsOf(place) >= 1 && admission.SlotsOf(place) <= kMaxSlots,
              "a node starts no or too many ranks");
    }
  }
  return started;
}

// The input consists of pieces of a connection's data, some as they are and some framed.
bool ParsesPeerMessages(const std::string& bytes) {
  Input input(bytes);
  asio::io_context loop;
  int ends[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "sockets");
  UniqueFd client(ends[1]);
  int asked = 0;
  int strange = 0;
  int gone = 0;
  auto peer = std::make_shared<Peer>(loop, UniqueFd(ends[0]), nullptr);
  peer->Start(milliseconds(5'000), {[&](const pb::AdmissionRequest& request) {
                                      Require(request.magic() == kPerNodeMagic,
                                              "a stranger may ask");
                                      ++asked;
                                    },
                                    [&](const std::string& why) {
                                      RequireOneLine(why);
                                      ++strange;
                                    },
                                    [&] { ++gone; }});
  while (!input.empty()) {
    std::string piece;
    if (input.Below(4) == 1) {  // the first message of a node's command
      pb::NodeMessage message;
      message.mutable_request()->set_magic(kPerNodeMagic);
      piece = message.SerializeAsString();
    } else {
      piece = input.Text();
    }
    if (input.Flag()) {
      std::string length(4, '\0');
      length[0] = static_cast<char>(piece.size() & 0xff);
      length[1] = static_cast<char>(piece.size() >> 8);
      piece = length + piece;
    }
    (void)send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    loop.poll();
    Require(asked <= 1 && strange <= 1 && gone <= 1, "a peer is announced twice");
    Require(asked + strange <= 1 && gone <= asked, "a stranger is a peer");
  }
  client.Reset();
  loop.poll();
  Require(asked + strange == 1 && gone == asked, "nobody hears of a peer's end");
  return asked == 1;
}

bool ParsesNodeEvents(const std::string& bytes) {
  static const TempDir folder;
  const std::string events = folder / "events.jsonl";
  std::filesystem::remove(events);
  Input input(bytes);
  const LaunchPlan plan = SomePlan();
  const std::vector<std::string> names = {"node0", "node1", "node2"};
  pb::Policy policy;
  policy.set_max_restarts(input.Flag() ? 3 : 0);
  JobState job_state(plan, policy);
  constexpr PeerLimits kLimits = {.nodes = 3, .ranks = 6, .slots = 2};
  std::vector<EventGate> gates(names.size(), EventGate(kLimits));
  Clock::time_point now(seconds(1'000));
  bool any = false;
  {
    EventLog log(folder.path(), /*in_log_dir=*/false,
                 [](const std::string&) { Require(false, "no event is kept"); });
    while (!input.empty()) {
      const size_t node = input.Below(names.size());
      switch (input.Below(8)) {
        case 0:
          job_state.OnDisconnected(node);
          break;
        case 1:
          job_state.OnLost(node, "it was silent", std::string(input.Text()));
          break;
        case 2:
          job_state.OnConnected(node);
          break;
        default:
          now += milliseconds(10);
          if (auto event = TakeMessage<pb::NodeEvent>(input)) {
            const Result<EventGate::Verdict> verdict = gates[node].OnEvent(*event, now);
            if (!verdict.ok()) {
              RequireOneLine(verdict.error().message);
              job_state.OnBrokenRules(MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(node),
                                                ExitCode::kUnavailable, verdict.error().message));
              continue;
            }
            any = true;
            job_state.OnEvent(node, *event);
            log.Record(names, node, *event);
            EventText(names[node], *event);
          }
      }
    }
    const JobEnd end = DecideJobEnd(job_state.Info());
    Require(end.cause.kind() == pb::Cause::NONE ? end.exit_code == 0
                                                : end.exit_code >= 1 && end.exit_code <= 255,
            "an exit code does not say how the job ended");
    for (const uint32_t member : end.members)
      Require(member < names.size(), "a node is a member that is not there");
    if (end.exit_code == 0) {
      const JobInfo info = job_state.Info();
      uint32_t succeeded = 0;
      for (const uint32_t member : end.members) succeeded += info.nodes[member].ranks.succeeded;
      Require(succeeded > 0 && succeeded == info.world_size, "a rank's success was never reported");
    }
    Require(job_state.workers_ended().size() <= 2 * size_t{kLimits.ranks},
            "more ends of ranks are kept than there are");
    const JobSummary summary =
        SummarizeJob("job", plan, job_state, end, {"/state/job", "", ""}, seconds(3));
    SummaryText(summary);
    const std::string json = SummaryJson(summary);
    Require(json.find('\n') == std::string::npos, "a summary has several lines");
    RequireJsonObject(json);
    log.Ended(json);
  }
  std::ifstream lines(events);
  for (std::string line; std::getline(lines, line);) RequireJsonObject(line);
  return any;
}

namespace {

// Checks a message twice: if it passes a check, it must pass the check again, unchanged. Returns
// whether it passed.
template <class Message, class Check>
bool PassesTwice(std::string_view bytes, Check check) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const Result<void> checked = check(message);
  if (!checked.ok()) {
    RequireOneLine(checked.error().message);
    return false;
  }
  const std::string once = message.SerializeAsString();
  Require(check(message).ok(), "what was taken is refused");
  Require(message.SerializeAsString() == once, "what was cut is cut again");
  return true;
}

}  // namespace

bool ChecksPeers(const std::string& bytes) {
  [[maybe_unused]] static auto* const former = google::protobuf::SetLogHandler(nullptr);
  Input input(bytes);
  static constexpr PeerLimits kLimits = {.nodes = 3, .ranks = 6, .slots = 2, .attempts = 4};
  const size_t kind = input.Below(9);
  const std::string_view rest = input.Rest();
  switch (kind) {
    case 0:
      return PassesTwice<pb::PrepareReply>(rest, CheckPrepareReply);
    case 1:
      return PassesTwice<pb::FailoverReply>(rest, CheckFailoverReply);
    case 2:
      return PassesTwice<pb::NodeEvent>(
          rest, [](pb::NodeEvent& event) { return CheckNodeEvent(event, kLimits); });
    case 3:
      return PassesTwice<pb::JobSight>(rest, CheckJobSight);
    case 4:
      return PassesTwice<pb::AgentMessage>(
          rest, [](pb::AgentMessage& message) { return CheckAgentMessage(message, kLimits); });
    case 5:
      return PassesTwice<pb::RendezvousMessage>(rest, [](pb::RendezvousMessage& message) {
        return CheckRendezvousMessage(message, kLimits);
      });
    case 7:
      return PassesTwice<pb::Vote>(rest, [](pb::Vote& vote) { return CheckVote(vote, kLimits); });
    case 8:
      return PassesTwice<pb::VoteAnswer>(rest, CheckVoteAnswer);
    default:
      return PassesTwice<pb::NodeInfo>(rest, [](pb::NodeInfo& info) {
        CutTexts(info);
        return Result<void>();
      });
  }
}

// Checks that an answer that violates a rule counts as its node's failure. Three nodes answer once
// each, in any order.
bool PreparesNodes(const std::string& bytes) {
  Input input(bytes);
  SessionOptions options;
  options.plan = SomePlan();
  if (input.Flag()) options.plan.launcher = Launcher::kPerNode;
  options.job.set_job_id("job");
  options.job.mutable_timeouts()->set_dead_ms(6'000);
  const Clock::time_point now(seconds(1'000));
  SessionCore core(options, now);
  core.Start(now);
  for (size_t node = 0; node < options.plan.nodes.size(); ++node)
    core.OnConnected(node, NodeAddresses{"10.0.0.1", "10.0.0.2"}, now);
  bool any_runs = false;
  bool is_finished = false;
  for (size_t node = 0; node < options.plan.nodes.size(); ++node) {
    auto reply = TakeMessage<pb::PrepareReply>(input);
    Result<pb::PreparedNode> info = Error{ExitCode::kUnavailable, "the connection broke"};
    if (reply) {
      const Result<void> checked = CheckPrepareReply(*reply);
      if (!checked.ok())
        info = checked.error();
      else if (reply->has_info())
        info = reply->info();
      else
        info = Error{static_cast<ExitCode>(reply->failure().exit_code()), "it failed"};
    }
    for (const SessionAction& action : core.OnPrepared(node, std::move(info), now)) {
      any_runs = any_runs || std::holds_alternative<action::Run>(action);
      is_finished = is_finished || std::holds_alternative<action::Finish>(action);
    }
  }
  Require(any_runs != is_finished, "a job neither starts nor ends");
  if (is_finished) {
    const int exit_code = core.End().job.exit_code;
    Require(exit_code >= 1 && exit_code <= 255, "a job that did not start ended well");
  }
  return any_runs;
}

bool ParsesSupervisorMessages(const std::string& bytes) {
  Input input(bytes);
  const size_t count = 1 + input.Below(4);
  pb::SpawnWorkers specs;
  for (uint32_t i = 0; i < count; ++i) {
    pb::WorkerSpec& spec = *specs.add_workers();
    spec.set_local_rank(i);
    spec.set_rank(4 + i);
    spec.set_stdout_path("/job/rank_" + std::to_string(4 + i) + "/stdout.log");
  }
  AttemptWorkers workers(1, {}, specs);
  Clock::time_point now(seconds(1'000));
  int all_started = 0;
  int all_well = 0;
  while (!input.empty()) {
    now += milliseconds(input.Below(4) * 100);
    const auto event = TakeMessage<pb::SupervisorEvent>(input);
    if (!event) continue;
    switch (event->event_case()) {
      case pb::SupervisorEvent::kSpawned:
        all_started += workers.OnSpawned(event->spawned().local_rank(), event->spawned().pid());
        break;
      case pb::SupervisorEvent::kSpawnFailed:
        workers.OnEnded(event->spawn_failed().local_rank(), std::nullopt);
        break;
      case pb::SupervisorEvent::kExited:
        all_well += workers.OnEnded(event->exited().local_rank(),
                                    event->exited().signal() == 0
                                        ? std::optional<int>(event->exited().exit_code())
                                        : std::nullopt);
        break;
      case pb::SupervisorEvent::kStatus:
        if (const auto line = StatusLine::Parse(event->status().data()))
          workers.OnStatus(event->status().local_rank(), *line, now);
        break;
      case pb::SupervisorEvent::kLooked: {
        pb::RankStacks stacks = event->looked().stacks();
        CutRankStacks(stacks);
        Require(stacks.ByteSizeLong() <= kMaxRankStackBytes, "too long an answer is kept");
        for (const std::string& text : {DescribeStacks(stacks, 8), ListStacks(stacks)}) {
          std::string rest = text;
          std::erase(rest, '\n');
          Require(rest == SanitizeForTerminal(rest), "a stack could steer a terminal");
        }
        break;
      }
      default:
        break;
    }
    Require(all_started <= 1 && all_well <= 1, "workers start or end twice");
    Require(workers.RunningPids().size() <= count && workers.Progress(now).size() <= count,
            "a worker is made up");
    for (const pid_t pid : workers.RunningPids())
      Require(pid > 0, "a signal would go to a group of processes that is not a worker's");
  }
  Require(static_cast<size_t>(workers.Started().pids_size()) == count, "a worker is lost");
  return all_started > 0;
}

// A supervisor whose agent sends arbitrary requests. It starts no processes, and the processes that
// it reports as left do not exist.
class ObedientSupervisor {
 public:
  explicit ObedientSupervisor(Input& input) : input_(input) {}

  void Pass(milliseconds time) {
    now_ += time;
    if (core_.wake() && now_ >= *core_.wake()) CarryOut(core_.OnTime(now_));
  }

  void OnRequest(const pb::SupervisorRequest& request) {
    const int before = failures_;
    const int specs = request.spawn().workers_size();
    if (request.has_stop()) ++stops_;
    CarryOut(core_.OnRequest(request, now_));
    Require(failures_ - before == specs, "a worker is forgotten");
  }

  void SeeChild() {
    siginfo_t child = {};
    child.si_code = static_cast<int>(input_.Below(8));
    child.si_pid = static_cast<pid_t>(input_.Number32());
    Require(!workers_.OnChild(child), "a worker is made up");
    CarryOut(core_.workers().OnChange(static_cast<uint32_t>(child.si_pid),
                                      {.event = WorkerEvent::kExited}));
    CarryOut(core_.OnReaped(now_));
  }

  // Simulates that the agent has ended and only time passes.
  void End() {
    CarryOut(core_.OnControlLost(now_));
    for (int i = 0; i < kMostSteps && core_.wake(); ++i) {
      now_ = std::max(now_, *core_.wake());
      CarryOut(core_.OnTime(now_));
    }
    Require(finished_, "a supervisor does not end");
    Require(answers_ <= stops_ && (stops_ == 0 || answers_ > 0), "a stop has no answer");
    Require(workers_.groups().empty(), "a group of processes is made up");
  }

  bool finished() const { return finished_; }
  bool has_processes() const { return left_ > 0; }  // number at the last look
  int failures() const { return failures_; }

 private:
  static constexpr int kMostSteps = 1'000;

  void CarryOut(SupervisorActions actions) {
    for (SupervisorAction& action : actions) {
      Require(!finished_, "a supervisor that has ended goes on");
      Require(*action.reason != '\0', "an action has no reason");
      std::visit([this](auto& what) { Do(what); }, action.what);
    }
  }
  template <class Other>
  void Do(const Other&) {}
  void Do(const supervisor_action::SendToAgent& send) {
    Require(!send.event.has_spawned() && !send.event.has_exited(), "a worker is started");
    failures_ += send.event.has_spawn_failed();
    answers_ += send.event.has_all_reaped();
  }
  void Do(const supervisor_action::MakeCgroup&) {
    CarryOut(core_.workers().OnCgroup(Error{ExitCode::kUnavailable, "there is none"}));
  }
  void Do(supervisor_action::StartWorker& start) {
    start.spec.clear_argv();
    const SpawnResult result = workers_.Start(start.spec, {});
    Require(result.pid <= 0, "a worker is started");
    CarryOut(core_.workers().OnStartFailed(start.spec.local_rank(), result.failure));
  }
  void Do(const supervisor_action::SignalWorkers& send) {
    workers_.Signal(send.signal, send.local_rank);
  }
  void Do(const supervisor_action::CountLeft&) {
    CarryOut(core_.OnReaped(now_));
    left_ = input_.Below(3);
    CarryOut(core_.OnLeft({.ranks = left_ / 2 + left_ % 2, .apart = left_ / 2}, now_));
  }
  void Do(const supervisor_action::ListLeft&) {
    LeftProcesses left;
    if (input_.Flag()) left.Add()->set_pid(1);
    CarryOut(core_.OnLeftListed(left, now_));
  }
  void Do(const supervisor_action::Finish& finish) {
    Require(finish.exit_code >= 0 && finish.exit_code <= 255, "an exit code is none");
    finished_ = true;
  }

  Input& input_;
  asio::io_context io_;
  SupervisorWorkers workers_{
      io_,
      UniqueFd(),
      {.on_status =
           [](const pb::SupervisorEvent&) {
             Require(false, "a worker that does not run has said something");
           },
       .on_start = [](uint32_t, const SpawnResult&) { Require(false, "a worker is started"); }}};
  SupervisorCore core_{{.agent_pid = 1}};
  Clock::time_point now_{seconds(1'000)};
  size_t left_ = 0;
  int failures_ = 0;
  int stops_ = 0;
  int answers_ = 0;
  bool finished_ = false;
};

bool ParsesAgentRequests(const std::string& bytes) {
  Input input(bytes);
  ObedientSupervisor supervisor(input);
  while (!input.empty() && !supervisor.finished()) {
    supervisor.Pass(milliseconds(input.Below(4) * 700));
    if (const auto request = TakeMessage<pb::SupervisorRequest>(input);
        request && !supervisor.finished())
      supervisor.OnRequest(*request);
    if (!supervisor.finished() && supervisor.has_processes()) supervisor.SeeChild();
  }
  if (!supervisor.finished()) supervisor.End();
  return supervisor.failures() > 0;
}

bool AssignsWorkers(const std::string& bytes) {
  Input input(bytes);
  pb::JobSpec job;
  job.set_job_id("job");
  WorkerPlan plan;
  plan.slots = static_cast<uint32_t>(1 + input.Below(4));
  plan.place.device = static_cast<pb::Device>(input.Below(pb::Device_ARRAYSIZE));
  const AcceleratorRow& row = RowOf(plan.place.device);
  plan.devices_given = input.Flag();
  plan.node_name = "node1";
  const std::string visible(input.Text());
  const bool is_set = input.Flag();
  const std::string variable(row.levels.back().front());
  const Environment environment = {"PATH=/bin", (is_set ? variable : "UNUSED") + "=" + visible};
  const std::vector<Accelerator> gpus = {{"GPU-1", 0}, {"GPU-12", 0}, {"", 0}};
  plan.devices = NamesOfSlots(row, {}, LookUpIn(environment), gpus,
                              static_cast<uint32_t>(input.Below(4)), plan.slots);
  Require(plan.devices.size() <= plan.slots, "there are more devices than slots");
  const SeenDevices shown = SeeThrough(row, visible, gpus, false);
  Require(shown.repeated.empty() || shown.devices.empty(),
          "devices are shown in spite of a repeated one");
  if (const auto options = TakeMessage<pb::RankOptions>(input))
    *job.mutable_ranks()->mutable_options() = *options;
  const auto assignment = TakeMessage<pb::Assignment>(input);
  if (assignment) plan.place.assignment = *assignment;
  constexpr size_t kNodes = 1'000;
  const std::vector<uint32_t> members = IndexesOf(plan.place.assignment.members(), kNodes);
  Require(std::ranges::is_sorted(members) && (members.empty() || members.back() < kNodes) &&
              std::ranges::adjacent_find(members) == members.end(),
          "nodes are not ascending");
  Require(IndexesOf(ToNodeSet(members)) == members, "nodes change when they are handed on");
  bool any = false;
  for (uint32_t slot = 0; slot < plan.slots; ++slot) {
    const Result<WorkerEnv> worker = MakeWorkerEnv(job, plan, environment, slot);
    if (!IsTaken(worker)) continue;
    any = true;
    const Environment placed = WithPlace(environment, *worker);
    Require(FindVariable(placed, "RANK") != nullptr && placed.size() >= environment.size(),
            "a rank has no place");
  }
  if (const auto choice = TakeMessage<pb::RankChoice>(input)) {
    const RankSelection selection(*choice);
    const uint32_t rank = input.Number32();
    const uint32_t local_rank = input.Number32();
    selection.Has(rank, local_rank, input.Flag());
  }
  return any && assignment.has_value();
}

bool ParsesNodeInfo(const std::string& bytes) {
  Input input(bytes);
  DoctorInfo info;
  info.launcher = Launcher::kSsh;
  info.version = "1";
  info.build_id = "00";
  info.cwd = "/work";
  info.world_size = 4;
  info.trainer_needed = input.Flag();
  bool any = false;
  for (size_t i = 0; i < 2; ++i) {
    DoctorNode& node = info.nodes.emplace_back();
    node.name = "node" + std::to_string(i);
    node.slots = 2;
    node.report = TakeMessage<pb::NodeInfo>(input);
    node.clock_ahead_us = static_cast<int64_t>(input.Number32());
    if (input.Flag()) node.reach = TakeMessage<pb::ReachReply>(input);
    any = any || node.report;
  }
  if (input.Flag()) {
    info.rendezvous = 0;
    info.listen = TakeMessage<pb::ListenReply>(input);
  }
  const std::vector<Finding> findings = Diagnose(info);
  Require(!findings.empty(), "nothing is found");
  RequireSanitizedLines(DoctorTable(info, findings));
  RequireJsonObject(DoctorJson(info, findings));
  return any;
}

bool ConnectsRanks(const std::string& bytes) {
  bool any = IsTaken(DecodeRankLink(bytes));
  Input input(bytes);
  const uint32_t slots = 2;
  RankLinkCore core(1);
  core.OnAttempt({1, NumberRanks({{0, slots}, {1, slots}}), "10.0.0.1:99"});
  while (!input.empty()) {
    const uint64_t session = input.Below(4);
    RankLinkMessage sent;
    sent.kind = static_cast<RankLinkMessage::Kind>(1 + input.Below(6));
    sent.from = static_cast<uint32_t>(input.Below(6));
    sent.to = static_cast<uint32_t>(input.Below(6));
    sent.node = static_cast<uint32_t>(input.Below(3));
    sent.attempt = input.Below(3);
    sent.text = input.Text();
    Require(DecodeRankLink(EncodeRankLink(sent)).ok(), "a message cannot be read again");
    RankLinkActions actions;
    switch (input.Below(4)) {
      case 0:
        actions = core.OnIncoming(sent, sent.node, UniqueFd());
        Require(sent.from / slots == sent.node ||
                    std::ranges::none_of(actions,
                                         [](const RankLinkAction& action) {
                                           return std::holds_alternative<rank_link_action::Send>(
                                               action);
                                         }),
                "a node has a connection in the name of another's rank");
        break;
      case 1:
        core.OnSessionEnd(session);
        break;
      default:
        actions = core.OnMessage(session, sent, "10.0.0.2:5");
    }
    for (const RankLinkAction& action : actions) {
      any = true;
      if (const auto* to = std::get_if<rank_link_action::ConnectTo>(&action))
        Require(to->message.node != 1 && to->message.attempt == 1, "it connects to itself");
      if (const auto* here = std::get_if<rank_link_action::ConnectHere>(&action)) {
        Require(here->message.to - slots < slots && here->message.from - slots < slots,
                "a rank of another node is connected here");
      }
    }
  }
  return any;
}

namespace {

// A PMIx server, its ranks, and the servers of other nodes, which send arbitrary messages.
class PmixServerOfANode {
 public:
  explicit PmixServerOfANode(Input& input) : input_(input), node_(TakeNode(input)) {}

  // Handles the whole input. Returns whether any message was accepted.
  bool Run() {
    while (!input_.empty()) {
      switch (input_.Below(6)) {
        case 0:
          EnterFence();
          break;
        case 1:
          open_.insert(++last_id_);
          CarryOut(exchange_.OnLocalRequest(last_id_, input_.Number32()));
          break;
        case 2:
          if (!asked_.empty()) AnswerAsLibrary();
          break;
        case 3:
          LoseNode(static_cast<uint32_t>(input_.Below(std::size(kRanks))));
          break;
        default:
          ReceiveFrom(static_cast<uint32_t>(input_.Below(std::size(kRanks))));
      }
    }
    // No other node is left to answer, so every fence and request that began on this node must have
    // ended.
    for (uint32_t node = 0; node < std::size(kRanks); ++node) LoseNode(node);
    Require(open_.empty(), "a rank waits for nodes that are gone");
    return any_;
  }

 private:
  static constexpr uint32_t kRanks[] = {2, 1, 2};  // number of ranks on each node
  static constexpr uint32_t kWorld = 5;

  static uint32_t TakeNode(Input& input) {
    return static_cast<uint32_t>(input.Below(std::size(kRanks)));
  }

  static pb::PmixJob JobOf(uint32_t node_rank) {
    pb::PmixJob job = PmixJobOf({std::begin(kRanks), std::end(kRanks)}, node_rank);
    Require(CheckPmixJob(job).ok(), "a job is none");
    return job;
  }

  // Returns ranks in ascending order, as PMIx's library passes them; empty means all ranks.
  std::vector<uint32_t> TakeRanks() { return TakeSome(input_, kWorld); }
  static bool IsOf(uint32_t node, uint32_t rank) {
    uint32_t first = 0;
    for (uint32_t before = 0; before < node; ++before) first += kRanks[before];
    return rank >= first && rank < first + kRanks[node];
  }

  void EnterFence() {
    std::vector<uint32_t> ranks = TakeRanks();
    const bool takes_part =
        std::ranges::any_of(ranks, [&](uint32_t rank) { return IsOf(node_, rank); });
    if (!ranks.empty() && !takes_part) return;  // no rank of this node would enter this fence
    open_.insert(++last_id_);
    CarryOut(exchange_.OnLocalFence(last_id_, std::move(ranks), std::string(input_.Text())));
  }

  void AnswerAsLibrary() {
    pb::ModexReply reply = ReplyTo(asked_.back());
    reply.set_data(std::string(input_.Text()));
    asked_.pop_back();
    CarryOut(exchange_.OnLocalReply(std::move(reply)));
  }

  void LoseNode(uint32_t node) {
    if (node != node_ && gone_.insert(node).second) CarryOut(exchange_.OnNodeGone(node));
  }

  // Receives a message from a node. A server that is not the hub is connected only to the hub.
  void ReceiveFrom(uint32_t from) {
    if (from == node_ || (node_ != 0 && from != 0) || gone_.contains(from)) return;
    Result<PmixActions> actions = exchange_.OnMessage(from, TakePmixMessage());
    if (!IsTaken(actions)) return LoseNode(from);
    any_ = true;
    CarryOut(*std::move(actions));
  }

  pb::PmixMessage TakePmixMessage() {
    pb::PmixMessage message;
    switch (input_.Below(5)) {
      case 0:
        TakeFence(*message.mutable_part()->mutable_fence());
        message.mutable_part()->set_data(std::string(input_.Text()));
        break;
      case 1:
        TakeFence(*message.mutable_end()->mutable_fence());
        message.mutable_end()->set_data(std::string(input_.Text()));
        break;
      case 2:
        message.mutable_request()->set_number(input_.Number());
        message.mutable_request()->set_from_node(input_.Number32());
        message.mutable_request()->set_rank(input_.Number32());
        break;
      case 3:
        message.mutable_reply()->set_number(input_.Number());
        message.mutable_reply()->set_from_node(input_.Number32());
        message.mutable_reply()->set_rank(input_.Number32());
        message.mutable_reply()->set_data(std::string(input_.Text()));
        break;
      default:
        if (auto any = TakeMessage<pb::PmixMessage>(input_)) message = *any;
    }
    return message;
  }

  void TakeFence(pb::Fence& fence) {
    for (const uint32_t rank : TakeRanks()) fence.add_ranks(rank);
    fence.set_number(input_.Number());
  }

  void CarryOut(PmixActions actions) {
    for (PmixAction& action : actions) {
      if (const auto* send = std::get_if<pmix_action::Send>(&action)) {
        Require(send->node_rank < std::size(kRanks) && send->node_rank != node_,
                "a message is for no other node");
        Require(node_ == 0 || send->node_rank == 0, "a message does not go through the hub");
      } else if (const auto* fence = std::get_if<pmix_action::EndFence>(&action)) {
        Require(open_.erase(fence->id) == 1, "a fence ends twice, or was none");
      } else if (const auto* request = std::get_if<pmix_action::EndRequest>(&action)) {
        Require(open_.erase(request->id) == 1, "a request ends twice, or was none");
      } else {
        const auto& ask = std::get<pmix_action::AskLibrary>(action);
        Require(IsOf(node_, ask.request.rank()), "the library is asked for a rank of another node");
        asked_.push_back(ask.request);
      }
    }
  }

  Input& input_;
  const uint32_t node_;
  PmixExchange exchange_{JobOf(node_)};
  uint64_t last_id_ = 0;
  std::set<uint64_t> open_;  // ids of this node's open fences and requests
  std::vector<pb::ModexRequest> asked_;
  std::set<uint32_t> gone_;
  bool any_ = false;
};

}  // namespace

bool ExchangesPmix(const std::string& bytes) {
  Input input(bytes);
  return PmixServerOfANode(input).Run();
}

// The input consists of lines: "0..." and "1..." from those ranks, "c0" and "c1" for the end of
// their connections, "f..." for the end of a barrier with the other nodes' data, "x..." for its
// failure.
bool SpeaksPmi(const std::string& bytes) {
  PmiCore core(PmixJobOf({2, 2}, 1));
  std::set<uint32_t> open = {0, 1};
  std::optional<std::string> fence;
  bool any = false;
  const auto carry_out = [&](const PmiActions& actions) {
    for (const PmiAction& action : actions) {
      if (const auto* reply = std::get_if<pmi_action::Reply>(&action)) {
        Require(open.contains(reply->local_rank), "a reply is for no rank");
        Require(reply->line.find('\n') == reply->line.size() - 1, "a reply is not one line");
        Require(reply->line.size() <= 2 * PmiCore::kMaxValueBytes, "a reply is too long");
      } else if (const auto* close = std::get_if<pmi_action::Close>(&action)) {
        Require(open.erase(close->local_rank) == 1, "a connection ends twice");
      } else if (const auto* entered = std::get_if<pmi_action::Fence>(&action)) {
        Require(!fence && open.size() == 2, "a barrier begins before all are there");
        fence = entered->data;
      } else {
        const uint32_t rank = std::get<pmi_action::Abort>(action).rank;
        Require(rank == 2 || rank == 3, "a rank of another node aborts");
      }
    }
  };
  for (const std::string_view line : SplitLines(bytes)) {
    if (line.empty()) continue;
    const std::string rest(line.substr(1));
    const uint32_t rank = line.ends_with('1') ? 1 : 0;
    if (line.front() == '0' || line.front() == '1') {
      const uint32_t from = line.front() == '1' ? 1 : 0;
      if (!open.contains(from)) continue;
      Result<PmiActions> actions = core.OnLine(from, rest);
      any = any || actions.ok();
      if (!IsTaken(actions)) open.erase(from);
      carry_out(actions.ok() ? *std::move(actions) : core.OnClosed(from));
    } else if (line.front() == 'c') {
      if (open.erase(rank) == 1) carry_out(core.OnClosed(rank));
    } else if (fence && (line.front() == 'f' || line.front() == 'x')) {
      const std::string data = *std::exchange(fence, std::nullopt) + rest;
      carry_out(core.OnFenceEnd(data, line.front() == 'x' ? "lost" : ""));
    }
  }
  return any;
}

bool ParsesPmixReports(const std::string& bytes) {
  Input input(bytes);
  const auto ranks = static_cast<uint32_t>(1 + input.Below(4));
  bool has_started = false;
  while (!input.empty()) {
    const auto report = TakeMessage<pb::PmixReport>(input);
    // The agent stops reading from a server that sends an invalid report.
    if (!report || !IsTaken(CheckPmixReport(*report, has_started, ranks))) break;
    Require((report->has_aborted() || report->has_rank()) == has_started,
            "a report comes before or after its time");
    if (report->has_failure()) break;
    if (report->has_rank())
      Require(report->rank().local_rank() < ranks, "a report is of a rank that is not there");
    has_started = true;
  }
  return has_started;
}

bool UnpacksNodes(const std::string& bytes) {
  pb::NodeList list;
  if (!list.ParseFromString(bytes)) return false;
  const Result<NodeTable> table = NodeTable::Read(list);
  if (!table.ok()) return false;
  Require(table->size() <= kMaxNodesInSet, "a job has too many nodes");
  Require(table->num_regular_slots() <= table->num_slots(), "spares have less than no slots");
  constexpr uint32_t kLookedAt = 100;
  std::vector<pb::Node> nodes;
  for (uint32_t index = 0; index < std::min(table->size(), kLookedAt); ++index)
    nodes.push_back(table->At(index));
  if (table->size() > 0) table->At(table->size() - 1);
  const Result<NodeTable> again = NodeTable::Read(PackNodes(nodes));
  Require(again.ok() && again->size() == nodes.size(), "a list is not what it was");
  for (uint32_t index = 0; index < nodes.size(); ++index) {
    const bool is_same = again->At(index).SerializeAsString() == nodes[index].SerializeAsString();
    Require(is_same, "a node is not what it was");
  }
  return true;
}

bool ParsesJobSights(const std::string& bytes) {
  Input input(bytes);
  JobRecord record;
  record.job_id = "job";
  record.launcher = Launcher::kSsh;
  record.nodes = {{"node0", "node0", 0, ""}, {"node1", "node1", 0, ""}};
  record.started_unix_ms = 1'700'000'000'000;
  bool any = false;
  std::vector<NodeAnswer> answers(record.nodes.size());
  for (NodeAnswer& answer : answers) {
    answer.sight = TakeMessage<pb::JobSight>(input);
    if (!answer.sight) answer.reason = "it cannot be reached";
    any = any || answer.sight;
  }
  const std::vector<JobView> views = {MakeJobView(record, false, answers)};
  Require(!StateText(views.front()).empty(), "a job is in no state");
  Require(std::ranges::count(JobTable(views, record.started_unix_ms + 1'000, 80), '\n') == 2,
          "a job is not one line");
  Require(nlohmann::json::parse(JobsJson(views)).size() == 1, "a job is lost");
  return any;
}

}  // namespace dslaunch
