#include "rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/count.h"
#include "base/text/size_text.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

// Time from the failure of the first victim to the end of the attempt. A Python program may leave
// the process group up to about a second before it exits, so the time is long enough for the cause
// to be reported too.
constexpr milliseconds kSettle(2'000);

// Returns the predicate of a notice about a node that joins late. Users of torchrun may expect a
// restart for the joining node, so the predicate mentions --on_join now.
std::string LateJoinText(const pb::Policy& policy, bool has_room) {
  constexpr char kAtOnce[] =
      "; --on_join now restarts all ranks for a node that joins, as torchrun does";
  if (policy.on_join() == pb::Policy::AT_ONCE || !has_room)
    return " joined; it may get ranks at the next restart";
  if (policy.max_restarts() == 0)
    return std::string(" joined, but gets no ranks: no restarts are allowed (--max_restarts)") +
           kAtOnce;
  return std::string(" joined; it may get ranks at the next restart") + kAtOnce;
}

// Returns whether the message of `participant` belongs to an attempt before `attempt`.
bool IsOutdated(const Participant& participant, const pb::AgentMessage& message, uint64_t attempt) {
  if (message.attempt() >= attempt) return false;
  switch (message.message_case()) {
    case pb::AgentMessage::kReady:
    case pb::AgentMessage::kFinished:
    case pb::AgentMessage::kWorkerFailed:
      return true;
    case pb::AgentMessage::kDrained:
      return participant.in_attempt;  // a spare does not receive the attempt's number
    default:
      return false;
  }
}

void RefuseOutdated(Roster& roster, SessionId session, const pb::AgentMessage& message) {
  pb::RendezvousMessage reply;
  reply.mutable_outdated()->set_attempt(message.attempt());
  reply.mutable_outdated()->set_what(
      message.GetDescriptor()->FindFieldByNumber(message.message_case())->name());
  roster.Send(session, std::move(reply));
}

// Returns the cause that `participant` reported, corrected so that it is not success and names a
// node of the job.
pb::Cause CauseReportedBy(const Roster& roster, size_t num_nodes, const Participant& participant,
                          pb::Cause cause) {
  const uint32_t index = participant.member.node_index;
  if (IsSuccess(cause)) {
    return roster.MakeNodeCause(pb::Cause::INTERNAL, index, ExitCode::kInternal,
                                roster.NodeName(index) + " failed without reporting a cause");
  }
  if (cause.node_index() >= num_nodes) cause.set_node_index(index);
  return cause;
}

// Makes the agent of a rank that counts as lost kill the rank, because the rank might never exit by
// itself. The agent then reports a loss that the job tolerates.
void EndLostRank(Roster& roster, uint32_t rank) {
  const Participant* const owner = roster.OwnerOf(rank);
  if (owner == nullptr || owner->lost_in) return;
  pb::RendezvousMessage message;
  message.mutable_end_rank()->set_rank(rank);
  roster.Send(owner->session, std::move(message));
}

// Notifies all nodes except `sender` that a rank uses MPI, because then all ranks must use it.
void SendMpiBegun(Roster& roster, const Participant& sender) {
  pb::RendezvousMessage message;
  message.mutable_mpi_begun();
  for (const Participant& participant : roster.Joined()) {
    if (&participant != &sender && participant.in_attempt && !participant.lost_in)
      roster.Send(participant.session, message);
  }
}

// Notifies the user of all nodes in `names` in one line, because a single relay may carry the
// connections of many nodes, which then reconnect together.
void NotifyOfReconnected(Roster& roster, const std::vector<std::string>& names) {
  if (names.empty()) return;
  roster.Notify((names.size() == 1 ? "the connection to " : "the connections to ") +
                NameList(names, ", ") + (names.size() == 1 ? " broke and was" : " broke and were") +
                " made again; nothing was lost");
}

// Returns the number of ranks of the attempt on nodes where some rank is still running. Does not
// count lost ranks that are tolerated.
size_t CountRunning(const Roster& roster) {
  size_t ranks = 0;
  for (const Participant& participant : roster.Joined()) {
    if (participant.in_attempt && !participant.finished)
      ranks += participant.member.slots - participant.tolerated.size();
  }
  return ranks;
}

// Passes the progress of the node's own ranks to `watch`. Ignores what the node reports about ranks
// of other nodes.
void PassProgress(const google::protobuf::RepeatedPtrField<pb::RankProgress>& ranks,
                  const Participant& participant, HangWatch& watch, Clock::time_point now) {
  for (const pb::RankProgress& rank : ranks) {
    if (participant.HasRank(rank.rank())) watch.OnReport(rank, now);
  }
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Clock::time_point now)
    : options_(std::move(options)),
      roster_(options_.nodes, options_.rendezvous_node, options_.attempt),
      last_tick_(now) {
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
    majority_.emplace(options_.voters, options_.nodes.size(), options_.majority,
                      MajorityLease(options_.timeouts));
  if (options_.attempt == 0) return;
  // The reports of earlier attempts were lost with the previous rendezvous. Only the number of
  // restarts and the cause of the last end are known, so every entry gets this cause.
  const pb::Cause& cause = options_.attempt_ended_by;
  ended_.assign(options_.restarts, {cause, now - milliseconds(options_.policy.cooldown_ms()), {}});
  failures_.Add(ReportSince(cause, cause.node_index(), now, now));
}

std::vector<Outgoing> Coordinator::OnMessage(SessionId session, const pb::AgentMessage& message,
                                             Clock::time_point now) {
  if (!roster_.RefuseIfFenced(session)) {
    Participant* const participant = roster_.Find(session);
    if (participant == nullptr) {
      Join(session, message, now);
    } else {
      if (std::exchange(participant->suspect, false)) {
        roster_.Notify(roster_.NodeName(participant->member.node_index) +
                       " sends heartbeats again, after " +
                       WholeSeconds(now - participant->last_seen));
      }
      participant->last_seen = now;
      Handle(*participant, message, now);
    }
  }
  return roster_.TakeOutgoing();
}

void Coordinator::Join(SessionId session, const pb::AgentMessage& message, Clock::time_point now) {
  const uint32_t index = message.node_index();
  const auto refuse = [&](const std::string& why) {
    roster_.Refuse(session, MakeCause(pb::Cause::START_FAILED, index, ExitCode::kInternal,
                                      "the rendezvous refused " + why));
  };
  if (message.job_id() != options_.job_id) return refuse("an agent of another job");
  if (!message.has_join()) return refuse("an agent that did not join first");
  if (index >= options_.nodes.size())
    return refuse("node " + std::to_string(index) + ", which is not part of the job");
  if (message.join().slots() != options_.nodes[index].slots())
    return refuse(roster_.NodeName(index) + ": its slots differ");
  // The session of an agent that left the job may still be open, because its connection counts as
  // broken until it is resumed. Only a node that is still in the job is therefore refused.
  if (roster_[index].has_joined && !roster_[index].lost_in && !roster_[index].HasLeft())
    return refuse(roster_.NodeName(index) + ": it has joined already");
  if (phase() == Phase::kStopping || phase() == Phase::kCompleted) {
    return roster_.Refuse(session,
                          !IsSuccess(*cause_)
                              ? *cause_
                              : MakeCause(pb::Cause::START_FAILED, index, ExitCode::kTimedOut,
                                          roster_.NodeName(index) + " joined too late"));
  }
  // Before the start, DecideQuorum reports nodes that share a machine and ends the job. A running
  // job must not end because of a late node, so that node is refused.
  if (phase() != Phase::kJoining && !options_.may_share_machine) {
    for (const Participant& other : roster_.Joined()) {
      if (!other.lost_in && other.member.node_index != index &&
          other.member.identity == message.join().identity()) {
        return refuse(roster_.NodeName(index) + ": it is the same machine as " +
                      roster_.NodeName(other.member.node_index));
      }
    }
  }
  const pb::Join& join = message.join();
  const bool is_twin =
      roster_.Add(session,
                  {index, join.slots(), join.identity(), join.reached_at(), join.master_port(),
                   join.address(), join.link_port(), join.role()},
                  now);
  OnLateJoin(index, now);
  // The new node may need a majority before it gets ranks, so it gets the addresses of the peers
  // now.
  if (majority_ && phase() != Phase::kJoining) roster_.SendPeers(options_.voters, &roster_[index]);
  // A decision examines all nodes, so it is made only once no expected node is missing.
  if (still_expected_ > 0 && !options_.nodes[index].spare()) --still_expected_;
  if (phase() != Phase::kJoining || still_expected_ == 0 || is_twin) TryToForm(now);
}

void Coordinator::OnLateJoin(uint32_t node_index, Clock::time_point now) {
  if (!barrier_.InAttempt()) return;
  quorum_options_.set_aside = NodesSetAside(now, ended_, options_.policy);
  const bool has_room =
      PickMembers(roster_.UsableMembers(), quorum_options_).size() > members_.size();
  // Once the ranks of some node have finished, a restart for the new node would only waste time, so
  // the node waits.
  const bool near_end = std::ranges::any_of(roster_.Joined(), [](const Participant& other) {
    return other.in_attempt && other.finished;
  });
  if (options_.policy.on_join() == pb::Policy::AT_ONCE && has_room && !near_end) {
    return EndAttemptForNode(roster_.NodeName(node_index) + " joined", now);
  }
  if (!options_.nodes[node_index].spare())
    roster_.Notify(roster_.NodeName(node_index) + LateJoinText(options_.policy, has_room));
}

void Coordinator::Handle(Participant& participant, const pb::AgentMessage& message,
                         Clock::time_point now) {
  if (IsOutdated(participant, message, attempt()))
    return RefuseOutdated(roster_, participant.session, message);
  // An agent may have no ranks in this attempt, so its reports of ranks count only if it has some.
  const bool current = participant.in_attempt && message.attempt() == attempt();
  switch (message.message_case()) {
    case pb::AgentMessage::kHeartbeat:
      return OnHeartbeat(participant, message, now);
    case pb::AgentMessage::kReady:
      if (!current) return;
      barrier_.Update(participant, [&] { participant.ready = true; });
      return AdvanceIfAllReady(now);
    case pb::AgentMessage::kFinished:
      if (!current) return;
      barrier_.Update(participant, [&] { participant.ready = participant.finished = true; });
      return AdvanceIfAllReady(now);
    case pb::AgentMessage::kWorkerFailed: {
      if (!current) return;
      pb::WorkerFailed failed = message.worker_failed();
      PassProgress(failed.ranks(), participant, hang_watch_, now);
      *failed.mutable_cause() =
          CauseReportedBy(roster_, options_.nodes.size(), participant, failed.cause());
      return OnWorkerFailed(participant, failed, now);
    }
    case pb::AgentMessage::kRankLost:
      if (current) EndLostRank(roster_, message.rank_lost().rank());
      return;
    case pb::AgentMessage::kMpiBegun:
      if (current && !std::exchange(mpi_has_begun_, true)) SendMpiBegun(roster_, participant);
      return;
    case pb::AgentMessage::kInspected:
      if (current && participant.HasRank(message.inspected().stacks().rank()) &&
          standstill_.OnInspected(message.inspected()))
        CheckProgress(/*steps_count=*/false, now);
      return;
    case pb::AgentMessage::kDrained:
      return OnDrained(participant, message.drained(), now);
    case pb::AgentMessage::kStop:
      return OnStopJob(
          participant,
          CauseReportedBy(roster_, options_.nodes.size(), participant, message.stop().cause()),
          now);
    case pb::AgentMessage::kFrontEndConnection:
      return OnFrontEndConnection(participant, message.front_end_connection().is_broken());
    case pb::AgentMessage::kTornDown:
      barrier_.Update(participant, [&] {
        participant.torn_down = participant.leaving || phase() == Phase::kStopping;
      });
      participant.saved = message.torn_down().saved();
      WaitIfAllDrained(now);
      return CompleteIfTornDown(now);
    default:
      return;
  }
}

void Coordinator::OnHeartbeat(const Participant& participant, const pb::AgentMessage& message,
                              Clock::time_point now) {
  const pb::Heartbeat& heartbeat = message.heartbeat();
  pb::RendezvousMessage reply;
  reply.mutable_heartbeat()->set_sent_us(heartbeat.sent_us());
  reply.mutable_heartbeat()->set_exchange_us(exchange_us_);
  reply.mutable_heartbeat()->set_stands_still(standstill_.is_reported());
  if (majority_) {
    majority_->OnHeartbeat(participant.member.node_index, heartbeat, *reply.mutable_heartbeat());
  }
  roster_.Send(participant.session, std::move(reply));
  if (message.attempt() != attempt()) return;
  PassProgress(heartbeat.ranks(), participant, hang_watch_, now);
  bool is_due = false;
  for (const pb::Stillness& report : heartbeat.stillness()) {
    is_due |=
        participant.HasRank(report.rank()) && standstill_.OnReport(report, options_.policy, now);
  }
  if (is_due) CheckProgress(/*steps_count=*/false, now);
}

void Coordinator::OnDrained(Participant& participant, const pb::Drained& drained,
                            Clock::time_point now) {
  if (participant.drained) return;
  barrier_.Update(participant, [&] { participant.drained = true; });
  participant.member.master_port = drained.master_port();
  participant.is_unfit = !drained.unfit().empty();
  if (participant.is_unfit) {
    roster_.Notify(roster_.NodeName(participant.member.node_index) +
                   " is unfit for the next attempt: " + drained.unfit());
  }
  participant.has_left_processes = drained.left_size() > 0;
  if (participant.has_left_processes) {
    roster_.Notify(roster_.NodeName(participant.member.node_index) +
                   " gets no more ranks: processes are left there that could not be ended");
  }
  WaitIfAllDrained(now);
}

void Coordinator::OnWorkerFailed(Participant& participant, const pb::WorkerFailed& failed,
                                 Clock::time_point now) {
  const int rank = failed.cause().rank();
  if (rank >= 0 && !participant.HasRank(static_cast<uint32_t>(rank))) {
    return Lose(
        {&participant},
        "its agent sent a message about rank " + std::to_string(rank) + ", which is not its own",
        Fence::kYes, now);
  }
  if (failures_.is_closed()) return;
  const FailureReport report = ReportOf(failed, participant.member.node_index, now);
  if (failed.tolerated() && rank >= 0) {
    // A tolerated loss leaves the other ranks running, so the attempt ends only if none of them
    // could succeed.
    if (!barrier_.InAttempt() || !participant.tolerated.insert(static_cast<uint32_t>(rank)).second)
      return;
    tolerated_.push_back(report);
    size_t ranks = 0;
    for (const Participant& other : roster_.Joined()) {
      if (other.in_attempt) ranks += other.member.slots;
    }
    if (tolerated_.size() >= ranks) {
      for (const FailureReport& loss : tolerated_) failures_.Add(loss);
      return EndAttempt(now);
    }
    const pb::Cause& cause = report.cause;
    return roster_.Notify(CauseText(cause, roster_.NodeName(cause.node_index())) +
                          (cause.evidence().empty() ? "" : " (" + cause.evidence() + ")") +
                          "; the job continues without it");
  }
  failures_.Add(report);
  if (!barrier_.InAttempt()) return;
  // The failure that made this rank a victim may be reported soon, so the attempt ends only after
  // kSettle.
  if (!failed.cause().victim() || failures_.reports().size() >= CountRunning(roster_))
    return EndAttempt(now);
  if (!settle_by_) settle_by_ = now + kSettle;
}

void Coordinator::OnStopJob(Participant& participant, const pb::Cause& cause,
                            Clock::time_point now) {
  if (phase() == Phase::kCompleted || (cause_ && IsSuccess(*cause_))) return;
  const uint32_t index = participant.member.node_index;
  const pb::Cause::Kind kind = cause.kind();
  // The rendezvous runs on the rendezvous node, so the job ends with that node. Any other node that
  // cannot continue leaves the job.
  const bool ends_job = phase() == Phase::kJoining || index == options_.rendezvous_node ||
                        kind == pb::Cause::INTERRUPTED ||
                        (participant.in_attempt && kind == pb::Cause::INTERNAL);
  const bool is_repeated = std::exchange(participant.leaving, true);
  if (is_repeated && !ends_job) return;
  // A leaving node counts as drained only once it is torn down, so the phase counts the nodes that
  // it waits for again.
  barrier_.Enter(phase(), roster_);
  const bool ends_attempt = participant.in_attempt && barrier_.InAttempt();
  if (kind == pb::Cause::NODE_LEFT && !ends_job) {
    if (ends_attempt) return EndAttemptForNode(cause.message(), now);
    return roster_.Notify(cause.message());
  }
  // Another attempt was about to replace the failed one, so the job ends with the new cause.
  if (ends_job && (phase() == Phase::kDraining || phase() == Phase::kWaiting)) {
    failures_.Close();
    return Stop(cause, now);
  }
  pb::WorkerFailed failed;
  *failed.mutable_cause() = cause;
  if (ends_job || participant.in_attempt) failures_.Add(ReportOf(failed, index, now));
  if (ends_job) return Stop(cause, now);
  if (ends_attempt) return EndAttempt(now);
  roster_.Notify(roster_.NodeName(index) + " leaves the job: " + cause.message());
}

// A single broken connection concerns one node only. If the connections of all nodes broke, the
// front end was killed and will not return, so the ranks end now.
void Coordinator::OnFrontEndConnection(Participant& participant, bool is_broken) {
  const bool was_broken = std::exchange(participant.front_end_link_is_broken, is_broken);
  if (!is_broken) {
    if (was_broken) reconnected_.push_back(roster_.NodeName(participant.member.node_index));
    return;
  }
  const auto has_front_end = [](const Participant& other) {
    return !other.lost_in && !other.torn_down && !other.leaving && !other.front_end_link_is_broken;
  };
  if (std::ranges::any_of(roster_.Joined(), has_front_end)) return;
  pb::RendezvousMessage message;
  message.mutable_no_front_end();
  roster_.Broadcast(message);
}

std::vector<Outgoing> Coordinator::Disconnect(SessionId session, const std::string& why,
                                              Clock::time_point now) {
  roster_.ForgetFence(session);
  if (Participant* const participant = roster_.Find(session))
    Lose({participant}, why, Fence::kNo, now);
  return roster_.TakeOutgoing();
}

std::vector<Outgoing> Coordinator::OnTick(Clock::time_point now) {
  const Clock::duration since_last_tick = now - std::exchange(last_tick_, now);
  if (phase() == Phase::kCompleted) return {};
  if (majority_) majority_->OnTick();
  NotifyOfReconnected(roster_, std::exchange(reconnected_, {}));
  if (since_last_tick >= milliseconds(options_.timeouts.dead_ms()) / 2) {
    hang_watch_.OnStall(now);
    standstill_.OnStall(now);
  }
  const bool has_ranks = phase() >= Phase::kStarting && phase() <= Phase::kWaiting;
  const SilenceDecision silence = silent_nodes_.Check(since_last_tick, has_ranks, now);
  if (silence.stop) {
    failures_.Close();
    Stop(*silence.stop, now);
  }
  Lose(silence.lost, silence.why, Fence::kYes, now);
  // The time limit ends the job even if another attempt is about to begin, so earlier failures no
  // longer count.
  if (time_limit_ && now >= *time_limit_ && phase() != Phase::kStopping) {
    failures_.Close();
    Stop(roster_.MakeNodeCause(
             pb::Cause::TIMED_OUT, options_.rendezvous_node, ExitCode::kTimedOut,
             "the job reached its time limit of " +
                 DurationText(static_cast<int64_t>(options_.timeouts.time_limit_ms())) +
                 " (--time_limit)"),
         now);
  }
  CheckBarrierTimes(now);
  CheckProgress(since_last_tick < milliseconds(options_.policy.hang_ms()) / 2, now);
  return roster_.TakeOutgoing();
}

}  // namespace dslaunch
