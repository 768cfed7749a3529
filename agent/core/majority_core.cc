#include "agent/core/majority_core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "agent/core/rendezvous_options.h"
#include "proto/wire/cause.h"
#include "rendezvous/majority.h"

namespace dslaunch {

void MajorityCore::OnPrepared() {
  const pb::PrepareRequest& prepare = job_.request();
  const pb::Timeouts& timeouts = job_.timeouts();
  ElectionCore::Options options;
  options.own = job_.node_index();
  options.voters = VotersOf(prepare, job_.nodes().size());
  if (options.voters.empty()) return;
  options.majority = bugs_.minority ? 1 : MajorityOf(options.voters.size());
  options.num_nodes = job_.nodes().size();
  const pb::Policy& policy = prepare.job().policy();
  options.min_nodes = BoundsOf(job_.nodes().All(), policy.min_nodes(), policy.max_nodes()).min;
  options.max_restarts = policy.max_restarts();
  options.fence = bugs_.no_fence ? milliseconds(0) : MajorityFence(timeouts);
  options.term = milliseconds(timeouts.dead_ms());
  options.patience = milliseconds(timeouts.join_ms());
  election_.emplace(std::move(options));
  lease_.SetTerms({.length = MajorityLease(timeouts),
                   .look_every = milliseconds(timeouts.heartbeat_ms()) / 2,
                   .prompt = milliseconds(0)});
}

// --- Lease of the rendezvous ---

// Ranks that run at the time of the detachment have a lease from then on, but a later assignment
// must wait for a lease.
void MajorityCore::OnDetach(Clock::time_point now, BootClock::time_point boot_now) {
  is_detached_ = true;
  lease_seen_ = now;
  lease_.Begin(boot_now);
}

void MajorityCore::OnMajority(BootClock::time_point sent, std::chrono::microseconds age,
                              BootClock::time_point now) {
  const auto since = std::max(sent.time_since_epoch() - age, std::chrono::microseconds(0));
  lease_.Renew(static_cast<uint64_t>(since.count()), now);
}

std::optional<milliseconds> MajorityCore::LeaseLeft(BootClock::time_point now) {
  return lease_counts_ ? lease_.Left(now) : std::nullopt;
}

void MajorityCore::UpdateLeaseCounts() {
  lease_counts_ =
      IsNeeded() && (workers_.is_working() || workers_.phase() == WorkersCore::Phase::kDraining);
}

// This process may read a message after the lease is over if it or its machine was suspended.
// Lease::Left then leaves time for renewals that are still unread. Running ranks need that time,
// but no rank may start in it, so the time since the last renewal decides.
bool MajorityCore::Admits(const pb::RendezvousMessage& assignment, BootClock::time_point boot_now) {
  held_.reset();
  if (!IsNeeded() || boot_now - lease_.renewed() < MajorityLease(job_.timeouts())) return true;
  held_ = assignment;
  return false;
}

void MajorityCore::OnDrain(bool failed) {
  held_.reset();
  if (failed) ++restarts_;
}

void MajorityCore::CheckLease(Clock::time_point joined_at, Clock::time_point now,
                              BootClock::time_point boot_now) {
  if (!election_) return;
  const bool has_lease = lease_.Left(boot_now) > milliseconds(0);
  if (has_lease) lease_seen_ = now;
  if (!IsNeeded()) return;
  const bool is_over = workers_.is_working() && !has_lease;
  // A rendezvous that opened but that too few nodes have joined gives no lease, so a missing lease
  // counts as lost too.
  const bool is_missing = now - std::max(lease_seen_, joined_at) >= MajorityLease(job_.timeouts());
  if (is_over || is_missing) OnLost();
}

void MajorityCore::OnLost() {
  if (!IsNeeded() || !out_.has_rendezvous() || workers_.stopping()) return;
  pb::Cause cause = job_.Cause(pb::Cause::NODE_LOST, ExitCode::kUnavailable,
                               job_.node_name() + " was cut off from most nodes of the job");
  cause.set_attempt(workers_.attempt());
  if (MayElect()) return out_.Ask(agent_request::Elect{std::move(cause)});
  out_.Ask(agent_request::NotifyStop{cause});
  out_.StopCutOff(cause);
}

// --- Election of another rendezvous ---

void MajorityCore::OnPeers(const pb::Peers& peers) {
  if (election_) election_->OnPeers(peers);
}

bool MajorityCore::MayElect() const {
  return IsNeeded() && !workers_.stopping() && election_->has_peers() &&
         restarts_ < job_.spec().policy().max_restarts();
}

void MajorityCore::Elect(uint32_t host, const pb::Cause& cause, Clock::time_point now) {
  held_.reset();
  is_electing_ = true;
  lost_by_ = cause;
  election_->OnLost({.host = host,
                     .attempt = std::max(workers_.attempt(), newest_attempt_),
                     .restarts = restarts_,
                     .was_idle = workers_.phase() == WorkersCore::Phase::kIdle,
                     .cause = cause},
                    now);
  pb::NodeEvent event;
  pb::Restarting& restarting = *event.mutable_restarting();
  restarting.set_attempt(workers_.attempt());
  *restarting.mutable_cause() = cause;
  restarting.set_reason(cause.message() +
                        "; a majority of the nodes elects another host of the "
                        "rendezvous, once no rank can run any more");
  out_.Emit(std::move(event));
}

void MajorityCore::OnVote(uint32_t voter, const pb::Vote& vote, Clock::time_point now) {
  if (voter >= job_.nodes().size()) return;
  out_.Log(job_.nodes().At(voter).name() + " votes for this node in term " +
           std::to_string(vote.term()));
  if (election_ && !workers_.stopping()) CarryOut(election_->OnVote(voter, vote, now));
}

void MajorityCore::OnVoterGone(uint32_t voter) {
  if (election_) election_->OnVoterGone(voter);
}

void MajorityCore::OnVoteAnswer(uint32_t candidate, const pb::VoteAnswer& answer,
                                Clock::time_point now) {
  if (is_electing_ && !workers_.stopping()) CarryOut(election_->OnAnswer(candidate, answer, now));
}

void MajorityCore::OnRendezvousOpened(const Result<std::vector<std::string>>& endpoints) {
  if (!is_electing_ || workers_.stopping()) return;
  if (!endpoints.ok()) out_.Log("cannot open a rendezvous here: " + endpoints.error().message);
  CarryOut(election_->OnOpened(endpoints));
}

void MajorityCore::CheckElection(Clock::time_point now) {
  if (is_electing_ && !workers_.stopping()) CarryOut(election_->OnTick(now));
}

void MajorityCore::CarryOut(ElectionActions actions) {
  for (ElectionAction& action : actions) {
    if (auto* follow = std::get_if<election_action::Follow>(&action)) {
      is_electing_ = false;
      if (follow->next.rendezvous_node() == job_.node_index())
        out_.Notify(job_.node_name() +
                    " hosts the rendezvous: a majority of the nodes has elected it");
      ++restarts_;  // counts as used even if this rendezvous is lost before it assigns ranks
      out_.Ask(agent_request::Follow{std::move(follow->next)});
    } else if (const auto* give_up = std::get_if<election_action::GiveUp>(&action)) {
      is_electing_ = false;
      out_.Notify("no restart: " + give_up->why);
      out_.StopCutOff(lost_by_);
    } else if (auto* vote = std::get_if<agent_action::SendVote>(&action)) {
      out_.Log("votes for " + job_.nodes().At(vote->candidate).name() + " at " + vote->endpoint +
               " in term " + std::to_string(vote->vote.term()));
      out_.Do(std::move(*vote));
    } else if (auto* answer = std::get_if<agent_action::AnswerVote>(&action)) {
      out_.Do(std::move(*answer));
    } else if (auto* open = std::get_if<agent_action::OpenRendezvous>(&action)) {
      out_.Log("elected in term " + std::to_string(election_->term()));
      out_.Do(std::move(*open));
    } else {
      out_.Do(agent_action::WithdrawVote());
    }
  }
}

}  // namespace dslaunch
