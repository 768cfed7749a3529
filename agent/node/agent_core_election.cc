// A detached job's majority: the lease under which this node runs ranks, and the election of
// another rendezvous when the one that gave it is lost.
#include <algorithm>
#include <utility>
#include <variant>

#include "agent/node/agent_core.h"
#include "agent/node/rendezvous_options.h"
#include "proto/wire/cause.h"

namespace dslaunch {

void AgentCore::PrepareElection() {
  const pb::Timeouts& timeouts = prepare_.job().timeouts();
  ElectionCore::Options options;
  options.own = prepare_.node_index();
  options.voters = VotersOf(prepare_, nodes_.size());
  if (options.voters.empty()) return;
  options.majority = options_.plant_minority ? 1 : MajorityOf(options.voters.size());
  options.num_nodes = nodes_.size();
  const pb::Policy& policy = prepare_.job().policy();
  options.min_nodes = BoundsOf(nodes_.All(), policy.min_nodes(), policy.max_nodes()).min;
  options.max_restarts = policy.max_restarts();
  options.fence = options_.plant_no_fence ? milliseconds(0) : MajorityFence(timeouts);
  options.term = milliseconds(timeouts.dead_ms());
  options.patience = milliseconds(timeouts.join_ms());
  election_.emplace(std::move(options));
  majority_lease_.SetTerms({.length = MajorityLease(timeouts),
                            .look_every = milliseconds(timeouts.heartbeat_ms()) / 2,
                            .prompt = milliseconds(0)});
}

// --- The lease ---

// The ranks that run when the front end leaves have a lease from then on. Any later assignment
// waits for one.
void AgentCore::CheckMajority(Clock::time_point now, BootClock::time_point boot_now) {
  if (!election_) return;
  const bool has_lease = majority_lease_.Left(boot_now) > milliseconds(0);
  if (has_lease) lease_seen_ = now;
  if (!NeedsMajority()) return;
  if (held_) OnAssignment(pb::RendezvousMessage(*held_), boot_now);
  const bool is_over = phase_ == Phase::kWorking && !has_lease;
  // Of a rendezvous that was opened and to which too few nodes came, too.
  if (is_over || now - lease_seen_ >= MajorityLease(prepare_.job().timeouts())) LoseMajority(now);
}

void AgentCore::LoseMajority(Clock::time_point now) {
  if (!NeedsMajority() || !joined_ || completed_ || stopping()) return;
  pb::Cause cause = OwnCause(pb::Cause::NODE_LOST, ExitCode::kUnavailable,
                             node_name() + " was cut off from most nodes of the job");
  cause.set_attempt(attempt_);
  if (MayElect()) return AwaitElection(cause, now);
  StopJob(cause);
  OnCompleted({}, now);
}

// --- The election ---

bool AgentCore::MayElect() const {
  return NeedsMajority() && !stopping() && election_->has_peers() &&
         restarts_ < prepare_.job().policy().max_restarts();
}

void AgentCore::AwaitElection(const pb::Cause& cause, Clock::time_point now) {
  Log(CauseText(cause) + "; the nodes elect another host of the rendezvous");
  LeaveRendezvous();
  failover_by_.reset();
  given_up_.reset();
  held_.reset();
  is_electing_ = true;
  lost_by_ = cause;
  election_->OnLost({.host = prepare_.rendezvous_node(),
                     .attempt = std::max(attempt_, newest_attempt_),
                     .restarts = restarts_,
                     .was_idle = phase_ == Phase::kIdle,
                     .cause = cause},
                    now);
  pb::NodeEvent event;
  pb::Restarting& restarting = *event.mutable_restarting();
  restarting.set_attempt(attempt_);
  *restarting.mutable_cause() = cause;
  restarting.set_reason(cause.message() +
                        "; a majority of the nodes elects another host of the "
                        "rendezvous, once no rank can run any more");
  Emit(std::move(event));
  if (phase_ > Phase::kWorking) return;
  phase_ = Phase::kDraining;
  StopWorkers();
}

AgentActions AgentCore::OnVote(uint32_t voter, const pb::Vote& vote, Clock::time_point now) {
  if (voter >= nodes_.size()) return {};
  Log(nodes_.At(voter).name() + " votes for this node in term " + std::to_string(vote.term()));
  if (election_ && !stopping()) CarryOut(election_->OnVote(voter, vote, now), now);
  return Take();
}

void AgentCore::OnVoterGone(uint32_t voter) {
  if (election_) election_->OnVoterGone(voter);
}

AgentActions AgentCore::OnVoteAnswer(uint32_t candidate, const pb::VoteAnswer& answer,
                                     Clock::time_point now) {
  if (is_electing_ && !stopping()) CarryOut(election_->OnAnswer(candidate, answer, now), now);
  return Take();
}

AgentActions AgentCore::OnRendezvousOpened(const Result<std::vector<std::string>>& endpoints,
                                           Clock::time_point now) {
  if (!is_electing_ || stopping()) return {};
  if (!endpoints.ok()) Log("cannot open a rendezvous here: " + endpoints.error().message);
  CarryOut(election_->OnOpened(endpoints), now);
  return Take();
}

void AgentCore::CarryOut(ElectionActions actions, Clock::time_point now) {
  for (ElectionAction& action : actions) {
    if (const auto* follow = std::get_if<election_action::Follow>(&action)) {
      FollowElection(*follow, now);
    } else if (const auto* give_up = std::get_if<election_action::GiveUp>(&action)) {
      GiveUpElection(*give_up, now);
    } else if (auto* vote = std::get_if<agent_action::SendVote>(&action)) {
      Log("votes for " + nodes_.At(vote->candidate).name() + " at " + vote->endpoint + " in term " +
          std::to_string(vote->vote.term()));
      Do(std::move(*vote));
    } else if (auto* answer = std::get_if<agent_action::AnswerVote>(&action)) {
      Do(std::move(*answer));
    } else if (auto* open = std::get_if<agent_action::OpenRendezvous>(&action)) {
      Log("elected in term " + std::to_string(election_->term()));
      Do(std::move(*open));
    } else {
      Do(agent_action::WithdrawVote());
    }
  }
}

void AgentCore::FollowElection(const election_action::Follow& follow, Clock::time_point now) {
  const uint32_t host = follow.next.rendezvous_node();
  if (host == prepare_.node_index())
    Notify(node_name() + " hosts the rendezvous: a majority of the nodes has elected it");
  ++restarts_;  // also where this rendezvous is lost before it gives ranks
  MoveTo(follow.next, now);
}

void AgentCore::GiveUpElection(const election_action::GiveUp& give_up, Clock::time_point now) {
  is_electing_ = false;
  Notify("no restart: " + give_up.why);
  BeginStop(lost_by_);
  OnCompleted({}, now);
}

}  // namespace dslaunch
