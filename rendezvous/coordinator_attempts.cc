// Implements the attempts of a job: their begin and end, and the end of the job.
#include <algorithm>
#include <set>
#include <utility>

#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/inspection.h"

namespace dslaunch {
namespace {

// Most ranks that are inspected after others timed out, in all nodes together.
constexpr size_t kMostInspected = 8;

// Returns the indexes of the nodes for which the job does not wait: those that cannot join any
// more, or joined but are not usable.
std::vector<uint32_t> NotExpected(const CoordinatorOptions& options, const Roster& roster,
                                  bool is_joining) {
  std::vector<uint32_t> indexes;
  for (uint32_t index = 0; index < options.nodes.size(); ++index) {
    const bool may_come = is_joining && std::ranges::count(options.absent_nodes, index) == 0;
    const bool expected = roster[index].has_joined ? roster[index].IsUsable() : may_come;
    if (!expected) indexes.push_back(index);
  }
  return indexes;
}

std::vector<uint32_t> UnfitNodes(const Roster& roster) {
  std::vector<uint32_t> nodes;
  for (const Participant& participant : roster.Joined()) {
    if (participant.is_unfit) nodes.push_back(participant.member.node_index);
  }
  return nodes;
}

// Requests an inspection of ranks that have not failed in this attempt. The rendezvous has no list
// of the ranks that succeeded, so each node skips its own.
void InspectRunning(Roster& roster, const FailureLog& failures) {
  std::set<int> failed;
  for (const FailureReport& report : failures.reports()) failed.insert(report.cause.rank());
  pb::Inspect inspect;
  inspect.set_reason("was still running when rank " + std::to_string(failures.First().rank()) +
                     " failed");
  SendInspect(roster, inspect, kMostInspected, [&](const Participant& participant, uint32_t rank) {
    return !participant.finished && !failed.contains(static_cast<int>(rank));
  });
}

// Returns whether `cause` is a request to stop and every rank of the attempt has saved its state.
bool AllSaved(const Roster& roster, const pb::Cause& cause) {
  return IsStopRequest(cause) &&
         std::ranges::all_of(roster.Joined(), [](const Participant& participant) {
           return !participant.in_attempt || (participant.torn_down && participant.saved);
         });
}

// Returns the reason to report when a node is declared lost because it did not drain in time.
const char* LateToDrain(const pb::Timeouts& timeouts) {
  return timeouts.check_ms() == 0 ? "it did not end its ranks in time"
                                  : "it did not end its ranks and check itself in time";
}

// Returns the first cause among all reports, or `so_far` if there are no reports. Notifies the user
// if the result differs from `so_far`.
FirstCause ResolveCause(Roster& roster, const FailureLog& failures, const pb::Cause& so_far) {
  if (failures.reports().empty()) return {so_far, {}, ""};
  FirstCause first = ChooseFirstCause(failures.reports());
  const pb::Cause& cause = first.cause;
  const bool same = cause.kind() == so_far.kind() && cause.rank() == so_far.rank() &&
                    cause.node_index() == so_far.node_index();
  if (same || IsSuccess(so_far)) return first;
  const std::string what = !cause.message().empty()
                               ? cause.message()
                               : "rank " + std::to_string(cause.rank()) + " (" +
                                     roster.NodeName(cause.node_index()) + ")";
  roster.Notify("first cause: " + what + " (" + first.reason + ")");
  return first;
}

}  // namespace

void Coordinator::TryToForm(Clock::time_point now) {
  const bool next = phase() == Phase::kWaiting && now >= not_before_;
  if (phase() != Phase::kJoining && !next) return;
  // A lost node must not count for the majority, but its lease may not have expired yet, so the
  // state of the node is checked.
  const auto is_here = [this](uint32_t voter) {
    return roster_[voter].has_joined && roster_[voter].IsUsable();
  };
  // The front end starts the first attempt, so only later attempts need a majority.
  if (attempt() > 0 && majority_ && !(majority_->IsMetBy(is_here) && majority_->IsLeaseValid())) {
    if (now < quorum_options_.join_deadline) return;
    const std::string why = std::to_string(options_.majority) + " of " +
                            std::to_string(options_.voters.size()) +
                            " nodes are a majority, and fewer are here";
    roster_.Notify("no restart: " + why);
    // The last attempt may have ended because a node joined or left, without a failure. The job
    // then ends with a timeout.
    return Stop(failures_.reports().empty()
                    ? roster_.MakeNodeCause(pb::Cause::TIMED_OUT, options_.rendezvous_node,
                                            ExitCode::kTimedOut, why)
                    : failures_.First(),
                now);
  }
  // A suspected node will soon send a heartbeat or be lost. Its loss during an attempt would cost
  // another restart, so the attempt waits.
  if (next && std::ranges::any_of(roster_.Joined(), [](const Participant& participant) {
        return participant.suspect && participant.IsUsable();
      }))
    return;
  quorum_options_.set_aside = NodesSetAside(now, ended_, options_.policy);
  quorum_options_.unfit = UnfitNodes(roster_);
  quorum_options_.absent = NotExpected(options_, roster_, phase() == Phase::kJoining);
  QuorumDecision decision = DecideQuorum(now, roster_.UsableMembers(), quorum_options_);
  if (decision.verdict == QuorumDecision::Verdict::kForm) return Form(std::move(decision), now);
  if (decision.verdict != QuorumDecision::Verdict::kFail) return;
  if (failures_.reports().empty()) return Stop(decision.cause, now);
  roster_.Notify("no restart: " + decision.reason);
  Stop(failures_.First(), now);
}

void Coordinator::Form(QuorumDecision decision, Clock::time_point now) {
  roster_.BeginAttempt();
  hang_watch_.Clear();
  standstill_.Clear();
  failures_.Clear();
  tolerated_.clear();
  settle_by_.reset();
  members_.clear();
  mpi_has_begun_ = false;
  barrier_deadline_ = now + milliseconds(options_.timeouts.ready_ms());
  const RankAssignment assigned = AssignRanks(std::move(decision.members));
  for (const RankBlock& block : assigned.ranks.blocks) members_.push_back(block.node_index);
  const auto regular =
      std::ranges::count_if(options_.nodes, [](const pb::Node& node) { return !node.spare(); });
  if (attempt() > 1 || std::cmp_less(members_.size(), regular))
    roster_.Notify("attempt " + std::to_string(attempt()) + ": " + decision.reason);
  const pb::NodeSet members = ToNodeSet(members_);
  for (const RankBlock& block : assigned.ranks.blocks) {
    Participant& participant = roster_[block.node_index];
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
    assignment.set_best_step(BestStep(ended_));
    *assignment.mutable_members() = members;
    roster_.Send(participant.session, std::move(message));
  }
  if (majority_) roster_.SendPeers(options_.voters);
  barrier_.Enter(Phase::kStarting, roster_);
}

void Coordinator::AdvanceIfAllReady(Clock::time_point now) {
  if (phase() == Phase::kStarting && barrier_.IsOpen()) {
    barrier_.Enter(Phase::kRunning, roster_);
    if (majority_) majority_->OnAllReady();
    pb::RendezvousMessage all_ready;
    all_ready.mutable_all_ready();
    roster_.Broadcast(all_ready);
  }
  // After the lease has expired, the other nodes may continue with another attempt, so this job
  // must not succeed any more.
  const bool may_succeed = !majority_ || !majority_->IsLeaseOver();
  if (phase() == Phase::kRunning && barrier_.IsOpen() && may_succeed) Stop(pb::Cause(), now);
}

void Coordinator::EndAttempt(Clock::time_point now) {
  settle_by_.reset();
  if (AreRunningRanksOfInterest(failures_.reports())) InspectRunning(roster_, failures_);
  const pb::Cause cause = failures_.First();
  ended_.push_back({cause, now, hang_watch_.BestStep()});
  const RestartDecision decision =
      DecideRestart(now, cause, ended_, options_.policy, options_.nodes);
  if (decision.restart) return Drain(cause, decision.reason, decision.delay, now);
  if (options_.policy.max_restarts() > 0) roster_.Notify("no restart: " + decision.reason);
  Stop(cause, now);
}

void Coordinator::EndAttemptForNode(const std::string& reason, Clock::time_point now) {
  ended_.push_back({pb::Cause(), now, hang_watch_.BestStep()});
  Drain(pb::Cause(), reason, milliseconds(0), now);
}

void Coordinator::Drain(const pb::Cause& cause, const std::string& reason, milliseconds delay,
                        Clock::time_point now) {
  delay_ = delay;
  barrier_deadline_ =
      now + EmptyingLimit(options_.timeouts) + milliseconds(options_.timeouts.check_ms());
  pb::RendezvousMessage message;
  *message.mutable_drain()->mutable_cause() = cause;
  message.mutable_drain()->set_reason(reason);
  message.mutable_drain()->set_delay_ms(static_cast<uint32_t>(delay.count()));
  for (Participant& participant : roster_.Joined()) {
    if (participant.lost_in || participant.leaving) continue;
    participant.drained = false;
    roster_.Send(participant.session, message);
  }
  barrier_.Enter(Phase::kDraining, roster_);
  WaitIfAllDrained(now);
}

void Coordinator::WaitIfAllDrained(Clock::time_point now) {
  if (phase() != Phase::kDraining || !barrier_.IsOpen()) return;
  barrier_.Enter(Phase::kWaiting, roster_);
  // Later reports may identify the cause better, so the cause is determined again.
  pb::Cause& cause = ended_.back().cause;
  if (!IsSuccess(cause)) cause = ResolveCause(roster_, failures_, cause).cause;
  not_before_ = now + delay_;
  quorum_options_.join_deadline = not_before_ + milliseconds(options_.timeouts.join_ms());
  TryToForm(now);
}

void Coordinator::Stop(const pb::Cause& cause, Clock::time_point now) {
  if (phase() == Phase::kStopping || phase() == Phase::kCompleted) return;
  barrier_.Enter(Phase::kStopping, roster_);
  cause_ = cause;
  barrier_deadline_ = now + EmptyingLimit(options_.timeouts);
  pb::RendezvousMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  roster_.Broadcast(message);
  CompleteIfTornDown(now);
}

void Coordinator::CompleteIfTornDown(Clock::time_point now) {
  if (phase() != Phase::kStopping || (!barrier_.IsOpen() && now < barrier_deadline_)) return;
  barrier_.Enter(Phase::kCompleted, roster_);
  pb::RendezvousMessage message;
  pb::Completed& completed = *message.mutable_completed();
  const FirstCause first = ResolveCause(roster_, failures_, *cause_);
  *completed.mutable_cause() = first.cause;
  completed.mutable_victims()->Add(first.victims.begin(), first.victims.end());
  *completed.mutable_members() = ToNodeSet(members_);
  for (const Participant& participant : roster_.Joined()) {
    const bool had_part = participant.in_attempt || attempt() == 0;
    const bool lost_before =
        participant.lost_in && !(had_part && *participant.lost_in == attempt());
    if (!participant.torn_down && !lost_before)
      completed.add_missing_nodes(participant.member.node_index);
  }
  completed.set_teardown_complete(completed.missing_nodes_size() == 0);
  completed.set_saved(!members_.empty() && AllSaved(roster_, first.cause));
  roster_.Broadcast(message, /*end_session=*/true);
}

void Coordinator::Lose(std::vector<Participant*> lost, const std::string& why, Fence fence,
                       Clock::time_point now) {
  std::erase_if(lost,
                [](const Participant* participant) { return participant->lost_in.has_value(); });
  if (lost.empty() || phase() == Phase::kCompleted) return;
  std::vector<Participant*> missed;
  std::vector<std::pair<SessionId, pb::Cause>> fenced;
  for (Participant* const participant : lost) {
    const uint32_t index = participant->member.node_index;
    barrier_.Update(*participant, [&] { roster_.Lose(*participant); });
    pb::Cause cause = roster_.LossOf({participant}, why);
    if (!participant->torn_down && !participant->leaving) {
      if (participant->in_attempt || attempt() == 0 || index == options_.rendezvous_node)
        missed.push_back(participant);
      else
        roster_.Notify(cause.message() + "; it had no ranks");
    }
    cause.set_message(cause.message() + "; it is no longer part of the job");
    if (fence == Fence::kYes) fenced.emplace_back(participant->session, std::move(cause));
  }
  if (!missed.empty()) OnLoss(missed, why, now);
  for (const auto& [session, cause] : fenced) roster_.Fence(session, cause);
  TryToForm(now);
  WaitIfAllDrained(now);
  CompleteIfTornDown(now);
}

void Coordinator::OnLoss(const std::vector<Participant*>& lost, const std::string& why,
                         Clock::time_point now) {
  const pb::Cause cause = roster_.LossOf(lost, why);
  const bool is_rendezvous = std::ranges::any_of(lost, [this](const Participant* participant) {
    return participant->member.node_index == options_.rendezvous_node;
  });
  // All ranks of the node may have succeeded, but it is unknown whether the node still runs
  // processes, so the loss is recorded also after success.
  failures_.Add(ReportSince(cause, cause.node_index(), lost.front()->last_seen, now));
  if (phase() == Phase::kStopping) return;
  const NodeBounds bounds =
      BoundsOf(options_.nodes, options_.policy.min_nodes(), options_.policy.max_nodes());
  const size_t possible =
      options_.nodes.size() - NotExpected(options_, roster_, phase() == Phase::kJoining).size();
  if (is_rendezvous || (phase() == Phase::kJoining && possible < bounds.min))
    return Stop(failures_.First(), now);
  if (barrier_.InAttempt()) EndAttempt(now);
}

void Coordinator::CheckBarrierTimes(Clock::time_point now) {
  TryToForm(now);
  AdvanceIfAllReady(now);
  CompleteIfTornDown(now);
  if (barrier_.InAttempt() && settle_by_ && now >= *settle_by_) return EndAttempt(now);
  if (now < barrier_deadline_) return;
  if (phase() == Phase::kDraining) {
    std::vector<Participant*> late;
    for (Participant& participant : roster_.Joined()) {
      if (!participant.IsDrained()) late.push_back(&participant);
    }
    return Lose(std::move(late), LateToDrain(options_.timeouts), Fence::kYes, now);
  }
  if (phase() != Phase::kStarting) return;
  std::string late;
  uint32_t first_late = 0;
  for (const Participant& participant : roster_.Joined()) {
    if (participant.ready || !participant.in_attempt) continue;
    if (late.empty()) first_late = participant.member.node_index;
    late += (late.empty() ? "" : ", ") + roster_.NodeName(participant.member.node_index);
  }
  failures_.Add(
      ReportSince(roster_.MakeNodeCause(pb::Cause::TIMED_OUT, first_late, ExitCode::kTimedOut,
                                        late + " did not start all workers in time"),
                  first_late, now, now));
  EndAttempt(now);
}

void Coordinator::CheckProgress(bool steps_count, Clock::time_point now) {
  if (phase() != Phase::kRunning) return;
  exchange_us_ = static_cast<uint64_t>(hang_watch_.ExchangeTime().count());
  const HangDecision steps = steps_count
                                 ? hang_watch_.Check(now, {milliseconds(options_.policy.hang_ms())})
                                 : HangDecision();
  if (steps.kind == HangDecision::Kind::kHang) standstill_.OnHang(steps, roster_, now);
  if (steps.kind == HangDecision::Kind::kStraggler) {
    const uint32_t slow = steps.ranks.front();
    const uint32_t node = roster_.OwnerOf(slow)->member.node_index;
    roster_.Notify(steps.reason + " (" + roster_.NodeName(node) + ")");
    constexpr uint32_t kLooks = 3;
    pb::Inspect inspect;
    inspect.set_reason("is slow");
    inspect.set_looks(kLooks);
    SendInspect(roster_, inspect, 1,
                [&](const Participant&, uint32_t rank) { return rank == slow; });
  }
  const auto verdict = standstill_.Check(options_.policy, options_.timeouts, roster_, now);
  if (!verdict) return;
  roster_.Notify(verdict->text + "\n  all stacks: dslaunch stacks " + options_.job_id,
                 verdict->is_standstill ? pb::Notice::BEGUN : pb::Notice::UNCHANGED);
  if (options_.policy.on_hang() == pb::Policy::REPORT) return;
  const std::vector<uint32_t>& ranks = verdict->culprit.ranks;
  const std::string& summary = verdict->culprit.summary;
  const uint32_t first_rank = ranks.empty() ? 0 : ranks.front();
  const Participant& owner = *roster_.OwnerOf(first_rank);
  const uint32_t node = owner.member.node_index;
  pb::Cause cause =
      roster_.MakeNodeCause(pb::Cause::HANG, node, ExitCode::kTimedOut,
                            verdict->reason + (summary.empty() ? "" : ": " + summary));
  if (ranks.size() == 1) {
    cause.set_rank(static_cast<int>(first_rank));
    cause.set_local_rank(static_cast<int>(first_rank - owner.first_rank));
  }
  failures_.Add(ReportSince(cause, node, now, now));
  if (options_.policy.on_hang() == pb::Policy::RESTART) return EndAttempt(now);
  Stop(cause, now);
}

}  // namespace dslaunch
