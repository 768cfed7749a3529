#include "rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/count.h"
#include "base/text/size_text.h"
#include "net/addresses.h"
#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

constexpr size_t kMostNamed = 5;      // limit of nodes named in a sentence
constexpr size_t kMostInspected = 8;  // limit of ranks inspected after others timed out

// Limits the nodes that may host the next rendezvous. Their addresses go to every node, so the
// traffic would otherwise grow with the square of the number of nodes.
constexpr size_t kMostPeers = 256;

// Time from the first victim's failure to the end of the attempt. A Python program that leaves the
// process group before it exits needs up to about a second for the rest of its exit.
constexpr milliseconds kSettle(2'000);

// Returns the time for all nodes to become empty: a little longer than the nodes' own limits, so
// that they can report which processes are left.
milliseconds EmptyingLimit(const pb::Timeouts& timeouts) {
  return milliseconds(timeouts.grace_ms() + timeouts.teardown_ms() + timeouts.dead_ms());
}

bool IsSuccess(const pb::Cause& cause) { return cause.kind() == pb::Cause::NONE; }

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Clock::time_point now)
    : options_(std::move(options)), participants_(options_.nodes.size()) {
  last_tick_ = now;
  if (options_.timeouts.time_limit_ms() > 0)
    time_limit_ = now + milliseconds(options_.timeouts.time_limit_ms()) - options_.age;
  quorum_options_.nodes = options_.nodes;
  quorum_options_.may_share_machine = options_.may_share_machine;
  quorum_options_.rendezvous_node = options_.rendezvous_node;
  quorum_options_.min_nodes = options_.policy.min_nodes();
  quorum_options_.max_nodes = options_.policy.max_nodes();
  quorum_options_.join_deadline = now + milliseconds(options_.timeouts.join_ms());
  for (uint32_t index = 0; index < options_.nodes.size(); ++index) {
    const bool absent = std::ranges::count(options_.absent_nodes, index) > 0;
    if (!options_.nodes[index].spare() && !absent) ++still_expected_;
  }
  if (!options_.voters.empty())
    majority_.emplace(options_.voters, options_.nodes.size(), options_.majority);
  if (options_.attempt == 0) return;
  // Earlier attempts belong to another rendezvous; only their number and the cause of their end
  // count.
  attempt_ = options_.attempt;
  const pb::Cause& cause = options_.attempt_ended_by;
  ended_.assign(options_.restarts, {cause, now - milliseconds(options_.policy.cooldown_ms()), {}});
  reports_.push_back(ReportSince(cause, cause.node_index(), now, now));
}

// --- Barriers ---

void Coordinator::EnterPhase(Phase phase) {
  phase_ = phase;
  awaited_ = static_cast<size_t>(std::ranges::count_if(
      Joined(), [this](const Participant& participant) { return IsAwaited(participant); }));
}

bool Coordinator::IsAwaited(const Participant& participant) const {
  switch (phase_) {
    case Phase::kStarting:
      return participant.in_attempt && !participant.ready;
    case Phase::kRunning:
      return participant.in_attempt && !participant.finished;
    case Phase::kDraining:
      return !participant.lost_in && !participant.IsDrained();
    case Phase::kStopping:
      return !participant.lost_in && !participant.torn_down;
    default:
      return false;
  }
}

template <class Change>
void Coordinator::Update(Participant& participant, Change change) {
  const bool before = IsAwaited(participant);
  change();
  if (before && !IsAwaited(participant)) --awaited_;
}

// --- Messages of agents ---

std::vector<Outgoing> Coordinator::OnMessage(SessionId session, const pb::AgentMessage& message,
                                             Clock::time_point now) {
  const auto known = sessions_.find(session);
  if (const auto fenced = fenced_.find(session); fenced != fenced_.end()) {
    Refuse(session, fenced->second);
  } else if (known == sessions_.end()) {
    Join(session, message, now);
  } else {
    Participant& participant = participants_[known->second];
    if (std::exchange(participant.suspect, false)) {
      Notify(NodeName(known->second) + " sends heartbeats again, after " +
             WholeSeconds(now - participant.last_seen));
    }
    participant.last_seen = now;
    Handle(participant, message, now);
  }
  return std::exchange(out_, {});
}

void Coordinator::Join(SessionId session, const pb::AgentMessage& message, Clock::time_point now) {
  const uint32_t index = message.node_index();
  const auto refuse = [&](const std::string& why) {
    Refuse(session, MakeCause(pb::Cause::START_FAILED, index, ExitCode::kInternal,
                              "the rendezvous refused " + why));
  };
  if (message.job_id() != options_.job_id) return refuse("an agent of another job");
  if (!message.has_join()) return refuse("an agent that did not join first");
  if (index >= options_.nodes.size())
    return refuse("node " + std::to_string(index) + ", which is not part of the job");
  if (message.join().slots() != options_.nodes[index].slots())
    return refuse(NodeName(index) + ": its slots differ");
  Participant& participant = participants_[index];
  if (participant.has_joined && !participant.lost_in)
    return refuse(NodeName(index) + ": it has joined already");
  if (phase_ == Phase::kStopping || phase_ == Phase::kCompleted) {
    return Refuse(session, !IsSuccess(*cause_)
                               ? *cause_
                               : MakeCause(pb::Cause::START_FAILED, index, ExitCode::kTimedOut,
                                           NodeName(index) + " joined too late"));
  }
  // While the job forms, DecideQuorum reports this and ends the job; later it must not end it.
  if (phase_ != Phase::kJoining && !options_.may_share_machine) {
    for (const Participant& other : Joined()) {
      if (!other.lost_in && other.member.identity == message.join().identity()) {
        return refuse(NodeName(index) + ": it is the same machine as " +
                      NodeName(other.member.node_index));
      }
    }
  }
  participant = {};
  participant.has_joined = true;
  participant.member = {index,
                        message.join().slots(),
                        message.join().identity(),
                        message.join().reached_at(),
                        message.join().master_port(),
                        message.join().address(),
                        message.join().link_port(),
                        message.join().role()};
  participant.session = session;
  participant.last_seen = now;
  const bool is_twin = !identities_.insert(participant.member.identity).second;
  sessions_.emplace(session, index);
  OnLateJoin(index, now);
  // A majority may need the node before it gets ranks.
  if (majority_ && phase_ != Phase::kJoining) SendPeers(&participant);
  // A decision examines all nodes, and most joins change nothing while many nodes are missing.
  if (still_expected_ > 0 && !options_.nodes[index].spare()) --still_expected_;
  if (phase_ != Phase::kJoining || still_expected_ == 0 || is_twin) TryToForm(now);
}

void Coordinator::OnLateJoin(uint32_t node_index, Clock::time_point now) {
  if (phase_ != Phase::kStarting && phase_ != Phase::kRunning) return;
  quorum_options_.set_aside = NodesSetAside(now, ended_, options_.policy);
  const bool has_room = PickMembers(UsableMembers(), quorum_options_).size() > members_.size();
  // Once a node's ranks have finished, another start would only waste time.
  const bool near_end = std::ranges::any_of(
      Joined(), [](const Participant& other) { return other.in_attempt && other.finished; });
  if (options_.policy.on_join() == pb::Policy::AT_ONCE && has_room && !near_end) {
    ended_.push_back({pb::Cause(), now, BestStep()});
    return Drain(pb::Cause(), NodeName(node_index) + " joined", milliseconds(0), now);
  }
  if (!options_.nodes[node_index].spare()) Notify(NodeName(node_index) + LateJoinText(has_room));
}

// torchrun restarts the ranks for a joining node.
std::string Coordinator::LateJoinText(bool has_room) const {
  constexpr char kAtOnce[] =
      "; --on_join now restarts all ranks for a node that joins, as torchrun does";
  if (options_.policy.on_join() == pb::Policy::AT_ONCE || !has_room)
    return " joined; it may get ranks at the next restart";
  if (options_.policy.max_restarts() == 0)
    return std::string(" joined, but gets no ranks: no restarts are allowed (--max_restarts)") +
           kAtOnce;
  return std::string(" joined; it may get ranks at the next restart") + kAtOnce;
}

void Coordinator::Handle(Participant& participant, const pb::AgentMessage& message,
                         Clock::time_point now) {
  if (IsOutdated(participant, message)) return RefuseOutdated(participant.session, message);
  // An agent without ranks reports nothing about them that counts.
  const bool current = participant.in_attempt && message.attempt() == attempt_;
  switch (message.message_case()) {
    case pb::AgentMessage::kHeartbeat:
      return OnHeartbeat(participant, message, now);
    case pb::AgentMessage::kReady:
      if (!current) return;
      Update(participant, [&] { participant.ready = true; });
      return AdvanceIfAllReady(now);
    case pb::AgentMessage::kFinished:
      if (!current) return;
      Update(participant, [&] { participant.ready = participant.finished = true; });
      return AdvanceIfAllReady(now);
    case pb::AgentMessage::kWorkerFailed: {
      if (!current) return;
      pb::WorkerFailed failed = message.worker_failed();
      *failed.mutable_cause() = CauseReportedBy(participant, failed.cause());
      return OnWorkerFailed(participant, failed, now);
    }
    case pb::AgentMessage::kRankLost:
      if (current) OnRankLost(message.rank_lost().rank());
      return;
    case pb::AgentMessage::kMpiBegun:
      if (current) OnMpiBegun(participant);
      return;
    case pb::AgentMessage::kDrained:
      return OnDrained(participant, message, now);
    case pb::AgentMessage::kStop:
      return OnStopJob(participant, CauseReportedBy(participant, message.stop().cause()), now);
    case pb::AgentMessage::kFrontEndConnection:
      return OnFrontEndConnection(participant, message.front_end_connection().is_broken());
    case pb::AgentMessage::kTornDown:
      Update(participant,
             [&] { participant.torn_down = participant.leaving || phase_ == Phase::kStopping; });
      participant.saved = message.torn_down().saved();
      WaitIfAllDrained(now);
      return CompleteIfTornDown(now);
    default:
      return;
  }
}

bool Coordinator::IsOutdated(const Participant& participant,
                             const pb::AgentMessage& message) const {
  if (message.attempt() >= attempt_) return false;
  switch (message.message_case()) {
    case pb::AgentMessage::kReady:
    case pb::AgentMessage::kFinished:
    case pb::AgentMessage::kWorkerFailed:
      return true;
    case pb::AgentMessage::kDrained:
      return participant.in_attempt;  // a spare knows no attempt number
    default:
      return false;
  }
}

void Coordinator::RefuseOutdated(SessionId session, const pb::AgentMessage& message) {
  pb::RendezvousMessage reply;
  reply.mutable_outdated()->set_attempt(message.attempt());
  reply.mutable_outdated()->set_what(
      message.GetDescriptor()->FindFieldByNumber(message.message_case())->name());
  Send(session, std::move(reply));
}

void Coordinator::OnHeartbeat(Participant& participant, const pb::AgentMessage& message,
                              Clock::time_point now) {
  pb::RendezvousMessage reply;
  reply.mutable_heartbeat()->set_sent_us(message.heartbeat().sent_us());
  if (majority_) {
    if (const uint64_t heard_us = message.heartbeat().rendezvous_clock_us(); heard_us != 0) {
      majority_->OnReceived(participant.member.node_index,
                            BootClock::time_point(ReportedMicroseconds(heard_us)), boot_now_);
    }
    reply.mutable_heartbeat()->set_rendezvous_clock_us(
        static_cast<uint64_t>(boot_now_.time_since_epoch().count()));
    if (const auto since = majority_->Since()) {
      reply.mutable_heartbeat()->set_majority_age_us(
          static_cast<uint64_t>((boot_now_ - *since).count()));
    }
  }
  Send(participant.session, std::move(reply));
  if (!participant.in_attempt || message.attempt() != attempt_) return;
  for (const pb::RankProgress& rank : message.heartbeat().ranks()) {
    if (rank.rank() - participant.first_rank >= participant.member.slots)
      continue;  // not one of its own ranks
    const auto [known, is_new] = participant.progress.try_emplace(rank.rank());
    Progress& progress = known->second;
    if (is_new) progress.first_step = rank.step();
    if (is_new || rank.step() != progress.steps.step) hang_is_reported_ = false;
    RankSteps& steps = progress.steps;
    steps.rank = rank.rank();
    steps.step = rank.step();
    steps.step_at = now - ReportedMicroseconds(rank.since_us());
    steps.steps_made = rank.step() - std::min(rank.step(), progress.first_step);
    steps.median_step = ReportedMicroseconds(rank.median_step_us());
    steps.median_compute = ReportedMicroseconds(rank.median_compute_us());
    steps.ended = rank.ended();
    steps.shares_cores = rank.shares_cores();
  }
}

void Coordinator::OnDrained(Participant& participant, const pb::AgentMessage& message,
                            Clock::time_point now) {
  if (participant.drained) return;
  Update(participant, [&] { participant.drained = true; });
  participant.member.master_port = message.drained().master_port();
  participant.has_left_processes = message.drained().left_size() > 0;
  if (participant.has_left_processes) {
    Notify(NodeName(participant.member.node_index) +
           " gets no more ranks: processes are left there that could not be ended");
  }
  WaitIfAllDrained(now);
}

void Coordinator::OnWorkerFailed(Participant& participant, const pb::WorkerFailed& failed,
                                 Clock::time_point now) {
  const int rank = failed.cause().rank();
  const bool is_own =
      rank < 0 || static_cast<uint32_t>(rank) - participant.first_rank < participant.member.slots;
  if (!is_own) {
    return Lose(
        participant,
        "its agent sent a message about rank " + std::to_string(rank) + ", which is not its own",
        Fence::kYes, now);
  }
  if (cause_is_final_) return;
  const FailureReport report = ReportOf(failed, participant.member.node_index, now);
  if (failed.tolerated() && rank >= 0) return OnToleratedLoss(participant, report, now);
  reports_.push_back(report);
  if (phase_ != Phase::kStarting && phase_ != Phase::kRunning) return;
  // Waits for other reports, because the failure that made this rank a victim may be reported soon.
  if (!failed.cause().victim() || reports_.size() >= CountRunning()) return EndAttempt(now);
  if (!settle_by_) settle_by_ = now + kSettle;
}

// A tolerated loss ends the attempt only if no rank is left that could succeed.
void Coordinator::OnToleratedLoss(Participant& participant, const FailureReport& report,
                                  Clock::time_point now) {
  if (phase_ != Phase::kStarting && phase_ != Phase::kRunning) return;
  const pb::Cause& cause = report.cause;
  if (!participant.tolerated.insert(static_cast<uint32_t>(cause.rank())).second) return;
  tolerated_.push_back(report);
  size_t ranks = 0;
  for (const Participant& other : Joined()) {
    if (other.in_attempt) ranks += other.member.slots;
  }
  if (tolerated_.size() >= ranks) {
    reports_.insert(reports_.end(), tolerated_.begin(), tolerated_.end());
    return EndAttempt(now);
  }
  Notify(CauseText(cause, NodeName(cause.node_index())) +
         (cause.evidence().empty() ? "" : " (" + cause.evidence() + ")") +
         "; the job continues without it");
}

// The agent of the lost rank kills it and reports a tolerated loss; by itself the rank might never
// end.
void Coordinator::OnRankLost(uint32_t rank) {
  for (const Participant& participant : Joined()) {
    if (!participant.in_attempt || participant.lost_in ||
        rank - participant.first_rank >= participant.member.slots)
      continue;
    pb::RendezvousMessage message;
    message.mutable_end_rank()->set_rank(rank);
    return Send(participant.session, std::move(message));
  }
}

// The other nodes are notified because each of their ranks has to use MPI too.
void Coordinator::OnMpiBegun(const Participant& sender) {
  if (std::exchange(mpi_has_begun_, true)) return;
  pb::RendezvousMessage message;
  message.mutable_mpi_begun();
  for (const Participant& participant : Joined()) {
    if (&participant != &sender && participant.in_attempt && !participant.lost_in)
      Send(participant.session, message);
  }
}

size_t Coordinator::CountRunning() const {
  size_t ranks = 0;
  for (const Participant& participant : Joined()) {
    if (participant.in_attempt && !participant.finished)
      ranks += participant.member.slots - participant.tolerated.size();
  }
  return ranks;
}

void Coordinator::OnStopJob(Participant& participant, const pb::Cause& cause,
                            Clock::time_point now) {
  if (phase_ == Phase::kCompleted || (cause_ && IsSuccess(*cause_))) return;
  const uint32_t index = participant.member.node_index;
  const pb::Cause::Kind kind = cause.kind();
  // Without the rendezvous node there is no rendezvous. Any other node that cannot continue leaves.
  const bool ends_job = phase_ == Phase::kJoining || index == options_.rendezvous_node ||
                        kind == pb::Cause::INTERRUPTED ||
                        (participant.in_attempt && kind == pb::Cause::INTERNAL);
  const bool is_repeated =
      std::exchange(participant.leaving, true);  // a leaving node is empty once torn down
  if (is_repeated && !ends_job) return;
  EnterPhase(phase_);
  if (kind == pb::Cause::NODE_LEFT && !ends_job) return OnLeave(participant, cause, now);
  pb::WorkerFailed told;
  *told.mutable_cause() = cause;
  const FailureReport report = ReportOf(told, index, now);
  if (ends_job && (phase_ == Phase::kDraining || phase_ == Phase::kWaiting)) {
    // The cause of the last attempt's end was about to be repaired by another attempt.
    reports_.clear();
    cause_is_final_ = true;
    return Stop(cause, now);
  }
  if ((ends_job || participant.in_attempt) && !cause_is_final_) reports_.push_back(report);
  if (ends_job) return Stop(cause, now);
  if (participant.in_attempt && (phase_ == Phase::kStarting || phase_ == Phase::kRunning))
    return EndAttempt(now);
  Notify(NodeName(index) + " leaves the job: " + cause.message());
}

// Nothing has failed, so another attempt without the node costs no restart.
void Coordinator::OnLeave(Participant& participant, const pb::Cause& cause, Clock::time_point now) {
  if (participant.in_attempt && (phase_ == Phase::kStarting || phase_ == Phase::kRunning)) {
    ended_.push_back({pb::Cause(), now, BestStep()});
    return Drain(pb::Cause(), cause.message(), milliseconds(0), now);
  }
  Notify(cause.message());
}

// A single broken connection is one node's problem. If the connections of all nodes broke, the
// front end was killed and will not return, so the ranks end now, without waiting for it.
void Coordinator::OnFrontEndConnection(Participant& participant, bool is_broken) {
  const bool was_broken = std::exchange(participant.front_end_link_is_broken, is_broken);
  if (!is_broken) {
    if (was_broken) reconnected_.push_back(NodeName(participant.member.node_index));
    return;
  }
  const auto has_front_end = [](const Participant& other) {
    return !other.lost_in && !other.torn_down && !other.leaving && !other.front_end_link_is_broken;
  };
  if (std::ranges::any_of(Joined(), has_front_end)) return;
  pb::RendezvousMessage message;
  message.mutable_no_front_end();
  Broadcast(message);
}

// Reports in one line, because one relay may carry the connections of many nodes.
void Coordinator::NotifyOfReconnected() {
  if (reconnected_.empty()) return;
  const std::vector<std::string> names = std::exchange(reconnected_, {});
  Notify((names.size() == 1 ? "the connection to " : "the connections to ") +
         NameList(names, ", ") + (names.size() == 1 ? " broke and was" : " broke and were") +
         " made again; nothing was lost");
}

std::vector<Outgoing> Coordinator::OnDisconnect(SessionId session, Clock::time_point now) {
  return Disconnect(session, "its agent disconnected", now);
}

std::vector<Outgoing> Coordinator::OnBrokenRules(SessionId session, const std::string& what,
                                                 Clock::time_point now) {
  return Disconnect(session, "its agent sent " + what, now);
}

std::vector<Outgoing> Coordinator::Disconnect(SessionId session, const std::string& why,
                                              Clock::time_point now) {
  fenced_.erase(session);
  const auto known = sessions_.find(session);
  if (known != sessions_.end()) Lose(participants_[known->second], why, Fence::kNo, now);
  return std::exchange(out_, {});
}

// --- Attempts ---

void Coordinator::TryToForm(Clock::time_point now) {
  const bool next = phase_ == Phase::kWaiting && now >= not_before_;
  if (phase_ != Phase::kJoining && !next) return;
  // The first attempt needs no majority, because the front end started it.
  if (attempt_ > 0 && !HasMajority()) {
    if (now < quorum_options_.join_deadline) return;
    const std::string why = std::to_string(options_.majority) + " of " +
                            std::to_string(options_.voters.size()) +
                            " nodes are a majority, and fewer are here";
    Notify("no restart: " + why);
    // If the last attempt ended for a node that joined or left, nothing has failed.
    return Stop(reports_.empty() ? MakeNodeCause(pb::Cause::TIMED_OUT, options_.rendezvous_node,
                                                 ExitCode::kTimedOut, why)
                                 : ChooseFirstCause(reports_).cause,
                now);
  }
  // A suspect will soon send a heartbeat or be lost. Another attempt with it would then cost
  // another restart.
  if (next && std::ranges::any_of(Joined(), [](const Participant& participant) {
        return participant.suspect && participant.IsUsable();
      }))
    return;
  quorum_options_.set_aside = NodesSetAside(now, ended_, options_.policy);
  quorum_options_.absent = NotExpected();
  QuorumDecision decision = DecideQuorum(now, UsableMembers(), quorum_options_);
  if (decision.verdict == QuorumDecision::Verdict::kForm) return Form(std::move(decision), now);
  if (decision.verdict != QuorumDecision::Verdict::kFail) return;
  if (reports_.empty()) return Stop(decision.cause, now);
  Notify("no restart: " + decision.reason);
  Stop(ChooseFirstCause(reports_).cause, now);
}

bool Coordinator::HasMajority() const {
  if (!majority_) return true;
  // A node that is lost does not count, although its lease may not have expired yet.
  const auto here = std::ranges::count_if(options_.voters, [this](uint32_t voter) {
    return participants_[voter].has_joined && participants_[voter].IsUsable();
  });
  if (std::cmp_less(here, options_.majority)) return false;
  return majority_->Since() && !IsLeaseOver();
}

bool Coordinator::IsLeaseOver() const {
  if (!majority_) return false;
  const std::optional<Majority::Time> since =
      majority_->Since() ? majority_->Since() : first_ready_at_;
  return since && boot_now_ - *since >= MajorityLease(options_.timeouts);
}

void Coordinator::SendPeers(const Participant* only) {
  pb::RendezvousMessage message;
  const Participant* host = nullptr;
  for (const uint32_t voter : options_.voters) {
    if (std::cmp_greater_equal(message.peers().peers_size(), kMostPeers)) break;
    const Participant& participant = participants_[voter];
    if (!participant.has_joined || participant.lost_in || participant.member.link_port == 0)
      continue;
    if (voter == options_.rendezvous_node) host = &participant;
    pb::Peer& peer = *message.mutable_peers()->add_peers();
    peer.set_node_index(voter);
    const std::string& address = participant.member.address;
    peer.set_endpoint(JoinHostPort(address.empty() ? "127.0.0.1" : address,
                                   static_cast<int>(participant.member.link_port)));
  }
  // Each node knows this node by the address through which it connected.
  const auto own = std::ranges::find_if(
      *message.mutable_peers()->mutable_peers(),
      [this](const pb::Peer& peer) { return peer.node_index() == options_.rendezvous_node; });
  for (const Participant& participant : Joined()) {
    if (participant.lost_in || (only != nullptr && only != &participant)) continue;
    if (host != nullptr && !participant.member.reached_at.empty()) {
      own->set_endpoint(
          JoinHostPort(participant.member.reached_at, static_cast<int>(host->member.link_port)));
    }
    Send(participant.session, message);
  }
}

void Coordinator::Form(QuorumDecision decision, Clock::time_point now) {
  ++attempt_;
  barrier_deadline_ = now + milliseconds(options_.timeouts.ready_ms());
  reports_.clear();
  tolerated_.clear();
  settle_by_.reset();
  members_.clear();
  hang_is_reported_ = false;
  mpi_has_begun_ = false;
  for (Participant& participant : Joined()) {
    participant.in_attempt = participant.ready = participant.finished = false;
    participant.progress.clear();
    participant.tolerated.clear();
  }
  const RankAssignment assigned = AssignRanks(std::move(decision.members));
  for (const RankBlock& block : assigned.ranks.blocks) members_.push_back(block.node_index);
  const auto regular =
      std::ranges::count_if(options_.nodes, [](const pb::Node& node) { return !node.spare(); });
  if (attempt_ > 1 || std::cmp_less(members_.size(), regular))
    Notify("attempt " + std::to_string(attempt_) + ": " + decision.reason);
  const pb::NodeSet members = ToNodeSet(members_);
  for (const RankBlock& block : assigned.ranks.blocks) {
    Participant& participant = participants_[block.node_index];
    participant.in_attempt = true;
    participant.first_rank = block.first_rank;
    pb::RendezvousMessage message;
    pb::Assignment& assignment = *message.mutable_assignment();
    assignment = AssignmentOf(assigned.ranks, block);
    assignment.set_master_addr(assigned.master_addr);
    assignment.set_master_port(assigned.master_port);
    assignment.set_link_port(assigned.link_port);
    const RolePlace& role = assigned.roles[block.node_rank];
    assignment.set_first_role_rank(role.first_rank);
    assignment.set_role_world_size(role.world_size);
    assignment.set_restart_count(CountFailed(ended_));
    *assignment.mutable_members() = members;
    Send(participant.session, std::move(message));
  }
  if (majority_) SendPeers();
  EnterPhase(Phase::kStarting);
}

void Coordinator::AdvanceIfAllReady(Clock::time_point now) {
  if (phase_ == Phase::kStarting && awaited_ == 0) {
    EnterPhase(Phase::kRunning);
    if (!first_ready_at_) first_ready_at_ = boot_now_;
    pb::RendezvousMessage all_ready;
    all_ready.mutable_all_ready();
    Broadcast(all_ready);
  }
  // Not after the lease has expired, because the other nodes may then continue with another
  // attempt.
  if (phase_ == Phase::kRunning && awaited_ == 0 && !IsLeaseOver()) Stop(pb::Cause(), now);
}

void Coordinator::EndAttempt(Clock::time_point now) {
  settle_by_.reset();
  if (AreRunningRanksOfInterest(reports_)) InspectRunning();
  const pb::Cause cause = ChooseFirstCause(reports_).cause;
  ended_.push_back({cause, now, BestStep()});
  const RestartDecision decision =
      DecideRestart(now, cause, ended_, options_.policy, options_.nodes);
  if (decision.restart) return Drain(cause, decision.reason, decision.delay, now);
  if (options_.policy.max_restarts() > 0) Notify("no restart: " + decision.reason);
  Stop(cause, now);
}

void Coordinator::Drain(const pb::Cause& cause, const std::string& reason, milliseconds delay,
                        Clock::time_point now) {
  delay_ = delay;
  barrier_deadline_ = now + EmptyingLimit(options_.timeouts);
  pb::RendezvousMessage message;
  *message.mutable_drain()->mutable_cause() = cause;
  message.mutable_drain()->set_reason(reason);
  message.mutable_drain()->set_delay_ms(static_cast<uint32_t>(delay.count()));
  for (Participant& participant : Joined()) {
    if (participant.lost_in || participant.leaving) continue;
    participant.drained = false;
    Send(participant.session, message);
  }
  EnterPhase(Phase::kDraining);
  WaitIfAllDrained(now);
}

void Coordinator::WaitIfAllDrained(Clock::time_point now) {
  if (phase_ != Phase::kDraining || awaited_ > 0) return;
  EnterPhase(Phase::kWaiting);
  // Later reports may identify the cause better.
  pb::Cause& cause = ended_.back().cause;
  if (!IsSuccess(cause)) cause = ResolveCause(cause).cause;
  not_before_ = now + delay_;
  quorum_options_.join_deadline = not_before_ + milliseconds(options_.timeouts.join_ms());
  TryToForm(now);
}

// --- The end ---

void Coordinator::Stop(const pb::Cause& cause, Clock::time_point now) {
  if (phase_ == Phase::kStopping || phase_ == Phase::kCompleted) return;
  EnterPhase(Phase::kStopping);
  cause_ = cause;
  barrier_deadline_ = now + EmptyingLimit(options_.timeouts);
  pb::RendezvousMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  Broadcast(message);
  CompleteIfTornDown(now);
}

void Coordinator::CompleteIfTornDown(Clock::time_point now) {
  if (phase_ != Phase::kStopping || (awaited_ > 0 && now < barrier_deadline_)) return;
  EnterPhase(Phase::kCompleted);
  pb::RendezvousMessage message;
  pb::Completed& completed = *message.mutable_completed();
  const FirstCause first = ResolveCause(*cause_);
  *completed.mutable_cause() = first.cause;
  completed.mutable_victims()->Add(first.victims.begin(), first.victims.end());
  *completed.mutable_members() = ToNodeSet(members_);
  for (const Participant& participant : Joined()) {
    const bool had_part = participant.in_attempt || attempt_ == 0;
    const bool lost_before = participant.lost_in && !(had_part && *participant.lost_in == attempt_);
    if (!participant.torn_down && !lost_before)
      completed.add_missing_nodes(participant.member.node_index);
  }
  completed.set_teardown_complete(completed.missing_nodes_size() == 0);
  completed.set_saved(AllSaved(first.cause));
  for (const Participant& participant : Joined()) {
    if (!participant.lost_in) Send(participant.session, message, /*end_session=*/true);
  }
}

bool Coordinator::AllSaved(const pb::Cause& cause) const {
  const auto has_saved = [](const Participant& participant) {
    return !participant.in_attempt || (participant.torn_down && participant.saved);
  };
  return IsStopRequest(cause) && !members_.empty() && std::ranges::all_of(Joined(), has_saved);
}

FirstCause Coordinator::ResolveCause(const pb::Cause& so_far) {
  if (reports_.empty()) return {so_far, {}, ""};
  FirstCause first = ChooseFirstCause(reports_);
  const pb::Cause& cause = first.cause;
  const bool same = cause.kind() == so_far.kind() && cause.rank() == so_far.rank() &&
                    cause.node_index() == so_far.node_index();
  if (same || IsSuccess(so_far)) return first;
  const std::string what = !cause.message().empty() ? cause.message()
                                                    : "rank " + std::to_string(cause.rank()) +
                                                          " (" + NodeName(cause.node_index()) + ")";
  Notify("first cause: " + what + " (" + first.reason + ")");
  return first;
}

void Coordinator::LoseTogether(std::vector<Participant*> lost, const std::string& why, Fence fence,
                               Clock::time_point now) {
  std::erase_if(lost,
                [](const Participant* participant) { return participant->lost_in.has_value(); });
  if (lost.empty() || phase_ == Phase::kCompleted) return;
  std::vector<Participant*> missed;
  std::vector<std::pair<SessionId, pb::Cause>> fenced;
  for (Participant* const participant : lost) {
    const uint32_t index = participant->member.node_index;
    Update(*participant, [&] { participant->lost_in = attempt_; });
    sessions_.erase(participant->session);
    pb::Cause cause = LossOf(index, why);
    if (!participant->torn_down && !participant->leaving) {
      if (participant->in_attempt || attempt_ == 0 || index == options_.rendezvous_node)
        missed.push_back(participant);
      else
        Notify(cause.message() + "; it had no ranks");
    }
    cause.set_message(cause.message() + "; it is no longer part of the job");
    if (fence == Fence::kYes) fenced.emplace_back(participant->session, std::move(cause));
  }
  if (!missed.empty()) OnLoss(missed, why, now);
  for (auto& [session, cause] : fenced) {
    Refuse(session, cause);
    fenced_.emplace(session, std::move(cause));
  }
  TryToForm(now);
  WaitIfAllDrained(now);
  CompleteIfTornDown(now);
}

void Coordinator::OnLoss(const std::vector<Participant*>& lost, const std::string& why,
                         Clock::time_point now) {
  const pb::Cause cause = LossOfAll(lost, why);
  const bool is_rendezvous = std::ranges::any_of(lost, [this](const Participant* participant) {
    return participant->member.node_index == options_.rendezvous_node;
  });
  // After success too: all its ranks succeeded, but it is unknown whether the node is empty.
  if (!cause_is_final_)
    reports_.push_back(ReportSince(cause, cause.node_index(), lost.front()->last_seen, now));
  if (phase_ == Phase::kStopping) return;
  const NodeBounds bounds =
      BoundsOf(options_.nodes, options_.policy.min_nodes(), options_.policy.max_nodes());
  const size_t possible = options_.nodes.size() - NotExpected().size();
  if (is_rendezvous || (phase_ == Phase::kJoining && possible < bounds.min))
    return Stop(ChooseFirstCause(reports_).cause, now);
  if (phase_ == Phase::kStarting || phase_ == Phase::kRunning) EndAttempt(now);
}

pb::Cause Coordinator::LossOfAll(const std::vector<Participant*>& lost,
                                 const std::string& why) const {
  std::string others;
  for (size_t i = 1; i < lost.size() && i < kMostNamed; ++i)
    others += (i == 1 ? "; " : ", ") + NodeName(lost[i]->member.node_index);
  if (lost.size() > kMostNamed)
    others += " and " + std::to_string(lost.size() - kMostNamed) + " more";
  return LossOf(lost.front()->member.node_index, why + others + (others.empty() ? "" : " too"));
}

// --- Time ---

std::vector<Outgoing> Coordinator::OnTick(Clock::time_point now) {
  const Clock::duration since_last_tick = now - std::exchange(last_tick_, now);
  if (phase_ == Phase::kCompleted) return {};
  if (majority_) majority_->OnTick();
  NotifyOfReconnected();
  CheckSilence(since_last_tick, now);
  CheckTimeLimit(now);
  CheckBarrierTimes(now);
  if (since_last_tick < milliseconds(options_.policy.hang_ms()) / 2) CheckProgress(now);
  return std::exchange(out_, {});
}

void Coordinator::CheckBarrierTimes(Clock::time_point now) {
  TryToForm(now);
  AdvanceIfAllReady(now);
  CompleteIfTornDown(now);
  const bool in_attempt = phase_ == Phase::kStarting || phase_ == Phase::kRunning;
  if (in_attempt && settle_by_ && now >= *settle_by_) return EndAttempt(now);
  if (now < barrier_deadline_) return;
  if (phase_ == Phase::kDraining) return LoseNodesNotDrained(now);
  if (phase_ != Phase::kStarting) return;
  std::string late;
  uint32_t first_late = 0;
  for (const Participant& participant : Joined()) {
    if (participant.ready || !participant.in_attempt) continue;
    if (late.empty()) first_late = participant.member.node_index;
    late += (late.empty() ? "" : ", ") + NodeName(participant.member.node_index);
  }
  reports_.push_back(
      ReportSince(MakeNodeCause(pb::Cause::TIMED_OUT, first_late, ExitCode::kTimedOut,
                                late + " did not start all workers in time"),
                  first_late, now, now));
  EndAttempt(now);
}

// The time limit ends the job, even if another attempt was about to begin.
void Coordinator::CheckTimeLimit(Clock::time_point now) {
  if (!time_limit_ || now < *time_limit_ || phase_ == Phase::kStopping) return;
  reports_.clear();
  cause_is_final_ = true;
  Stop(MakeNodeCause(pb::Cause::TIMED_OUT, options_.rendezvous_node, ExitCode::kTimedOut,
                     "the job reached its time limit of " +
                         DurationText(static_cast<int64_t>(options_.timeouts.time_limit_ms())) +
                         " (--time_limit)"),
       now);
}

void Coordinator::LoseNodesNotDrained(Clock::time_point now) {
  std::vector<Participant*> late;
  for (Participant& participant : Joined()) {
    if (!participant.IsDrained()) late.push_back(&participant);
  }
  LoseTogether(std::move(late), "it did not end its ranks in time", Fence::kYes, now);
}

void Coordinator::CheckProgress(Clock::time_point now) {
  if (phase_ != Phase::kRunning) return;
  std::vector<RankSteps> ranks;
  for (const Participant& participant : Joined()) {
    for (const auto& [rank, progress] : participant.progress) ranks.push_back(progress.steps);
  }
  const HangDecision decision = DecideHang(now, ranks, {milliseconds(options_.policy.hang_ms())});
  if (decision.kind == HangDecision::Kind::kStraggler) {
    for (Participant& participant : Joined()) {
      const auto slow = participant.progress.find(decision.ranks.front());
      if (slow == participant.progress.end()) continue;
      slow->second.steps.reported_slow = decision.slowness;
      Notify(decision.reason + " (" + NodeName(participant.member.node_index) + ")");
    }
  }
  if (decision.kind == HangDecision::Kind::kHang && !std::exchange(hang_is_reported_, true))
    OnHang(decision, now);
}

void Coordinator::OnHang(const HangDecision& decision, Clock::time_point now) {
  std::optional<uint32_t> first_node;
  for (const Participant& participant : Joined()) {
    pb::RendezvousMessage message;
    pb::Inspect& inspect = *message.mutable_inspect();
    inspect.set_reason("seems to hang: " + decision.reason);
    for (const uint32_t rank : decision.ranks) {
      if (participant.in_attempt && participant.progress.contains(rank)) inspect.add_ranks(rank);
    }
    if (inspect.ranks_size() == 0) continue;
    if (!first_node) first_node = participant.member.node_index;
    Send(participant.session, std::move(message));
  }
  if (options_.policy.on_hang() == pb::Policy::REPORT) return;
  pb::Cause cause =
      MakeNodeCause(pb::Cause::HANG, *first_node, ExitCode::kTimedOut, decision.reason);
  if (decision.ranks.size() == 1) {
    cause.set_rank(static_cast<int>(decision.ranks.front()));
    cause.set_local_rank(cause.rank() - static_cast<int>(participants_[*first_node].first_rank));
  }
  reports_.push_back(ReportSince(cause, *first_node, now, now));
  if (options_.policy.on_hang() == pb::Policy::RESTART) return EndAttempt(now);
  Stop(cause, now);
}

// A node skips the ranks that have succeeded, which only it knows.
void Coordinator::InspectRunning() {
  std::set<int> failed;
  for (const FailureReport& report : reports_) failed.insert(report.cause.rank());
  const std::string reason = "was still running when rank " +
                             std::to_string(ChooseFirstCause(reports_).cause.rank()) + " failed";
  size_t left = kMostInspected;
  for (const Participant& participant : Joined()) {
    if (!participant.in_attempt || participant.finished || participant.lost_in) continue;
    pb::RendezvousMessage message;
    pb::Inspect& inspect = *message.mutable_inspect();
    inspect.set_reason(reason);
    for (uint32_t slot = 0; slot < participant.member.slots && left > 0; ++slot) {
      const uint32_t rank = participant.first_rank + slot;
      if (failed.contains(static_cast<int>(rank))) continue;
      inspect.add_ranks(rank);
      --left;
    }
    if (inspect.ranks_size() > 0) Send(participant.session, std::move(message));
  }
}

// --- Helpers ---

std::vector<Member> Coordinator::UsableMembers() const {
  std::vector<Member> members;
  members.reserve(participants_.size());
  for (const Participant& participant : Joined()) {
    if (participant.IsUsable()) members.push_back(participant.member);
  }
  return members;
}

std::vector<uint32_t> Coordinator::NotExpected() const {
  std::vector<uint32_t> indexes;
  for (uint32_t index = 0; index < options_.nodes.size(); ++index) {
    const Participant& participant = participants_[index];
    const bool may_come =
        phase_ == Phase::kJoining && std::ranges::count(options_.absent_nodes, index) == 0;
    const bool expected = participant.has_joined ? participant.IsUsable() : may_come;
    if (!expected) indexes.push_back(index);
  }
  return indexes;
}

std::optional<uint64_t> Coordinator::BestStep() const {
  std::optional<uint64_t> best;
  for (const Participant& participant : Joined()) {
    for (const auto& [rank, progress] : participant.progress)
      best = std::max(best, std::optional(progress.steps.step));
  }
  return best;
}

pb::Cause Coordinator::MakeNodeCause(pb::Cause::Kind kind, uint32_t node_index, ExitCode code,
                                     std::string message) const {
  pb::Cause cause = MakeCause(kind, node_index, code, std::move(message));
  cause.set_attempt(attempt_);
  return cause;
}

pb::Cause Coordinator::LossOf(uint32_t node_index, const std::string& why) const {
  return MakeNodeCause(pb::Cause::NODE_LOST, node_index, ExitCode::kUnavailable,
                       NodeName(node_index) + " was lost: " + why);
}

// Returns the reported cause, corrected so that it is not success and names a node of the job.
pb::Cause Coordinator::CauseReportedBy(const Participant& participant, pb::Cause cause) const {
  const uint32_t index = participant.member.node_index;
  if (IsSuccess(cause)) {
    return MakeNodeCause(pb::Cause::INTERNAL, index, ExitCode::kInternal,
                         NodeName(index) + " failed without reporting a cause");
  }
  if (cause.node_index() >= options_.nodes.size()) cause.set_node_index(index);
  return cause;
}

void Coordinator::Notify(const std::string& text) {
  const Participant& own = participants_[options_.rendezvous_node];
  if (!own.has_joined || own.lost_in) return;
  pb::RendezvousMessage message;
  message.mutable_notice()->set_message(text);
  Send(own.session, std::move(message));
}

void Coordinator::Refuse(SessionId session, const pb::Cause& cause) {
  pb::RendezvousMessage message;
  *message.mutable_refused()->mutable_cause() = cause;
  Send(session, std::move(message), /*end_session=*/true);
}

void Coordinator::Send(SessionId session, pb::RendezvousMessage message, bool end_session) {
  message.set_attempt(attempt_);
  out_.push_back({session, std::move(message), end_session});
}

void Coordinator::Broadcast(const pb::RendezvousMessage& message) {
  for (const Participant& participant : Joined()) {
    if (!participant.lost_in) Send(participant.session, message);
  }
}

std::string Coordinator::NodeName(uint32_t node_index) const {
  return options_.nodes[node_index].name();
}

}  // namespace dslaunch
