#include "agent/core/membership_core.h"

#include <utility>

#include "base/count.h"
#include "proto/wire/cause.h"
#include "rendezvous/majority.h"

namespace dslaunch {
namespace {

constexpr milliseconds kFailoverSlack(10'000);  // added to the front end's wait before a failover

}  // namespace

void MembershipCore::OnRun(std::vector<std::string> rendezvous_endpoints, Clock::time_point now) {
  endpoints_ = std::move(rendezvous_endpoints);
  if (!workers_.stopping()) Find(now);  // a stop that arrived first prevents the search
}

void MembershipCore::Find(Clock::time_point now) {
  if (is_host()) return Join("", now);
  const pb::Timeouts& timeouts = job_.timeouts();
  out_.Do(agent_action::FindRendezvous{
      .endpoints = endpoints_,
      .node_index = host(),
      .limit = majority_.IsNeeded() ? MajorityLease(timeouts) : milliseconds(timeouts.join_ms())});
}

void MembershipCore::OnFound(const Result<std::string>& address, Clock::time_point now) {
  if (workers_.stopping()) return;
  if (address.ok()) return Join(*address, now);
  // The elected node is lost too, so the nodes elect another node.
  if (majority_.MayElect()) return OnEnd(address.error().message, now);
  out_.OnRendezvousOver();
  out_.Ask(agent_request::Stop{job_.Cause(pb::Cause::TIMED_OUT, address.error().code,
                                          job_.node_name() + ": " + address.error().message)});
}

void MembershipCore::Join(const std::string& address, Clock::time_point now) {
  out_.Log("joining the rendezvous " + (address.empty() ? "in this process" : "at " + address));
  out_.OnJoined();
  joined_at_ = now;
  last_seen_ = now;
  agent_action::JoinRendezvous join;
  join.in_process = is_host_;
  join.join.set_slots(job_.node().slots());
  join.join.set_role(job_.spec().ranks().options().role());
  out_.Do(std::move(join));
}

void MembershipCore::OnTick(Clock::time_point now, bool was_late) {
  if (was_late) last_seen_ = now;
  if (out_.has_rendezvous() && now - last_seen_ >= SilenceLimit(job_.timeouts()))
    OnEnd("no heartbeat", now);
  if (failover_by_ && now >= *failover_by_) {
    failover_by_.reset();
    out_.StopCutOff(lost_by_);
  }
}

bool MembershipCore::IsQuiet(Clock::time_point now) const {
  return out_.has_rendezvous() && !is_host_ &&
         now - last_seen_ >= milliseconds(job_.timeouts().dead_ms()) / 2;
}

void MembershipCore::OnEnd(const std::string& why, Clock::time_point now) {
  if (out_.is_rendezvous_over()) return;
  front_end_.OnUnreachable();
  pb::Cause cause =
      MakeCause(pb::Cause::NODE_LOST, host(), ExitCode::kUnavailable,
                job_.nodes().At(host()).name() +
                    " was lost: the connection to its rendezvous broke (" + why + ")");
  cause.set_attempt(workers_.attempt());
  if (!is_host_ && CanBeReplaced()) return AwaitFailover(cause, now);
  if (majority_.MayElect()) return out_.Ask(agent_request::Elect{std::move(cause)});
  out_.StopCutOff(cause);
}

// --- Change to another rendezvous ---

// Returns whether a front end can choose another host of the rendezvous and the policy allows
// another attempt.
bool MembershipCore::CanBeReplaced() const {
  return job_.spec().policy().max_restarts() > 0 && !workers_.stopping() &&
         front_end_.CanNameRendezvous();
}

void MembershipCore::OnCutOff(const pb::Cause& cause, Clock::time_point now) {
  if (!is_host_ || !CanBeReplaced()) return;
  out_.Notify(job_.node_name() + " received no heartbeat from any other node for " +
              Seconds(job_.timeouts().dead_ms()) +
              ", so it may be the one that is cut off; it gives the rendezvous up");
  AwaitFailover(cause, now);
}

// The front end first makes sure that the lost node has ended its ranks. This may take as long as
// the node's lease, if the node cannot be notified, so the wait includes the lease.
void MembershipCore::AwaitFailover(const pb::Cause& cause, Clock::time_point now) {
  const pb::Timeouts& timeouts = job_.timeouts();
  out_.Log(CauseText(cause) + "; waiting for the front end to name another");
  const bool gives_up = is_host_;
  Leave();
  lost_by_ = cause;
  failover_by_ = now + kFailoverSlack +
                 milliseconds(timeouts.lease_ms() + 2 * timeouts.dead_ms() + timeouts.grace_ms() +
                              timeouts.teardown_ms());
  pb::RendezvousLost lost;
  lost.set_attempt(workers_.attempt());
  lost.set_idle(workers_.phase() == WorkersCore::Phase::kIdle);
  *lost.mutable_cause() = cause;
  // The front end need not wait for the lease of a node that reports the end of its ranks. A node
  // that gives up its rendezvous therefore reports the loss only after its ranks have ended.
  if (gives_up)
    given_up_ = std::move(lost);
  else
    EmitLost(std::move(lost));
  out_.Ask(agent_request::DrainRanks{});
}

void MembershipCore::EmitLost(pb::RendezvousLost lost) const {
  pb::NodeEvent event;
  *event.mutable_rendezvous_lost() = std::move(lost);
  out_.Emit(std::move(event));
}

Result<void> MembershipCore::CheckFailover(const pb::FailoverRequest& request) const {
  if (!failover_by_ || workers_.stopping())
    return Error{ExitCode::kUnavailable, "this node does not wait for another rendezvous"};
  if (request.rendezvous_node() >= job_.nodes().size())
    return Error{ExitCode::kInternal, "the front end named a node that is not part of the job"};
  return {};
}

void MembershipCore::OnFailover(const pb::FailoverRequest& request, Clock::time_point now) {
  failover_by_.reset();
  given_up_.reset();
  moved_to_ = request.rendezvous_node();
  is_host_ = job_.node_index() == host();
  endpoints_.assign(request.rendezvous_endpoints().begin(), request.rendezvous_endpoints().end());
  out_.Log(job_.nodes().At(host()).name() + " hosts the rendezvous from now on");
  joins_when_empty_ = workers_.phase() == WorkersCore::Phase::kDraining;
  if (!joins_when_empty_) Find(now);
}

bool MembershipCore::OnRanksEnded(Clock::time_point now) {
  if (given_up_) {
    EmitLost(*std::exchange(given_up_, std::nullopt));
    return true;
  }
  if (!std::exchange(joins_when_empty_, false)) return false;
  Find(now);
  return true;
}

void MembershipCore::Leave() {
  is_host_ = false;
  out_.OnLeft();
  out_.Do(agent_action::LeaveRendezvous());
}

void MembershipCore::LeaveForElection() {
  Leave();
  failover_by_.reset();
  given_up_.reset();
}

void MembershipCore::LeaveToOthers() {
  const bool others_go_on = job_.spec().policy().max_restarts() > 0 && job_.nodes().size() > 1;
  if (is_host_ && !workers_.stopping() && others_go_on) Leave();
}

}  // namespace dslaunch
