// A node and its rendezvous: joins it, handles its messages, and waits for a failover when it is
// lost.
#include <algorithm>
#include <utility>

#include "agent/node/agent_core.h"
#include "base/count.h"
#include "proto/wire/cause.h"
#include "rendezvous/majority.h"

namespace dslaunch {
namespace {

constexpr milliseconds kFailoverSlack(10'000);  // beyond what the front end waits before it moves

}  // namespace

void AgentCore::GoToRendezvous(Clock::time_point now) {
  if (hosts_rendezvous_) return JoinRendezvous("", now);
  const pb::Timeouts& timeouts = prepare_.job().timeouts();
  Do(agent_action::FindRendezvous{
      .endpoints = rendezvous_endpoints_,
      .node_index = prepare_.rendezvous_node(),
      .limit = NeedsMajority() ? MajorityLease(timeouts) : milliseconds(timeouts.join_ms())});
}

AgentActions AgentCore::OnRendezvousFound(const Result<std::string>& address,
                                          Clock::time_point now) {
  if (stopping()) return {};
  if (!address.ok() && MayElect()) {
    // The node that was elected is lost too.
    LoseRendezvous(address.error().message, now);
    return Take();
  }
  if (!address.ok()) {
    completed_ = true;
    BeginStop(OwnCause(pb::Cause::TIMED_OUT, address.error().code,
                       node_name() + ": " + address.error().message));
    return Take();
  }
  JoinRendezvous(*address, now);
  return Take();
}

void AgentCore::JoinRendezvous(const std::string& address, Clock::time_point now) {
  Log("joining the rendezvous " + (address.empty() ? "in this process" : "at " + address));
  joined_ = true;
  last_seen_ = now;
  lease_seen_ = now;
  agent_action::JoinRendezvous join;
  join.in_process = hosts_rendezvous_;
  join.join.set_slots(own_node().slots());
  join.join.set_role(prepare_.job().ranks().options().role());
  Do(std::move(join));
}

AgentActions AgentCore::OnRendezvousMessage(const pb::RendezvousMessage& message,
                                            Clock::time_point now, BootClock::time_point boot_now) {
  last_seen_ = now;
  newest_attempt_ = std::max(newest_attempt_, message.attempt());
  switch (message.message_case()) {
    case pb::RendezvousMessage::kAssignment:
      OnAssignment(message, boot_now);
      break;
    case pb::RendezvousMessage::kPeers:
      if (election_) election_->OnPeers(message.peers());
      break;
    case pb::RendezvousMessage::kDrain:
      OnDrain(message.attempt(), message.drain());
      break;
    case pb::RendezvousMessage::kInspect:
      OnInspect(message.inspect());
      break;
    case pb::RendezvousMessage::kNotice:
      Notify(message.notice().message());
      break;
    case pb::RendezvousMessage::kOutdated:
      Log("the rendezvous is at attempt " + std::to_string(message.attempt()) + " and ignored '" +
          message.outdated().what() + "' of attempt " +
          std::to_string(message.outdated().attempt()));
      break;
    case pb::RendezvousMessage::kAllReady: {
      pb::NodeEvent event;
      event.mutable_running()->set_attempt(message.attempt());
      Emit(std::move(event));
      break;
    }
    case pb::RendezvousMessage::kStop:
      BeginStop(message.stop().cause());
      break;
    case pb::RendezvousMessage::kRefused:
      BeginStop(message.refused().cause());
      OnCompleted({}, now);
      break;
    case pb::RendezvousMessage::kEndRank:
      if (message.attempt() == attempt_) OnEndRank(message.end_rank().rank());
      break;
    case pb::RendezvousMessage::kCutOff:
      OnCutOff(message.cut_off().cause(), now);
      break;
    case pb::RendezvousMessage::kMpiBegun:
      if (message.attempt() == attempt_) OnMpiBegun(now);
      break;
    case pb::RendezvousMessage::kNoFrontEnd:
      if (front_end_link_is_broken_) SendNoFrontEnd();
      break;
    case pb::RendezvousMessage::kCompleted:
      done_.set_completed(true);
      OnCompleted(message.completed(), now);
      break;
    default:
      break;
  }
  return Take();
}

AgentActions AgentCore::OnRendezvousEnd(const std::string& why, Clock::time_point now) {
  LoseRendezvous(why, now);
  return Take();
}

void AgentCore::LoseRendezvous(const std::string& why, Clock::time_point now) {
  if (completed_) return;
  if (front_end_link_is_broken_) SendNoFrontEnd();  // this node is cut off from all
  const uint32_t host = prepare_.rendezvous_node();
  pb::Cause cause = MakeCause(
      pb::Cause::NODE_LOST, host, ExitCode::kUnavailable,
      nodes_.At(host).name() + " was lost: the connection to its rendezvous broke (" + why + ")");
  cause.set_attempt(attempt_);
  if (MayFailOver()) return AwaitFailover(cause, now);
  if (MayElect()) return AwaitElection(cause, now);
  BeginStop(cause);
  OnCompleted({}, now);
}

void AgentCore::OnCompleted(const pb::Completed& word, Clock::time_point now) {
  if (std::exchange(completed_, true)) return;
  completed_at_ = now;
  Log(word.teardown_complete() ? "every node confirmed its teardown"
                               : "not every node confirmed its teardown");
  done_.set_teardown_complete(word.teardown_complete());
  *done_.mutable_cause() = word.cause();
  *done_.mutable_members() = word.members();
  *done_.mutable_victims() = word.victims();
  done_.set_saved(word.saved());
  EndIfAllIsReported();
  QuitIfIdle(now);
}

// --- Another rendezvous ---

// A front end is there to name another host of the rendezvous, and policy allows another attempt.
bool AgentCore::CanBeReplaced() const {
  return prepare_.job().policy().max_restarts() > 0 && !stopping() && !detached() &&
         !front_end_gone_ && !front_end_link_is_broken_ && !stream_over_at_;
}

// The rendezvous here hears no other node, or no majority. The other nodes may hear each other.
void AgentCore::OnCutOff(const pb::Cause& cause, Clock::time_point now) {
  if (!hosts_rendezvous_) return;
  if (NeedsMajority()) return LoseMajority(now);
  if (!CanBeReplaced()) return;
  Notify(node_name() + " received no heartbeat from any other node for " +
         Seconds(prepare_.job().timeouts().dead_ms()) +
         ", so it may be the one that is cut off; it gives the rendezvous up");
  AwaitFailover(cause, now);
}

// The front end first makes sure that the lost node has ended its ranks, which takes the node as
// long as its lease if it cannot be notified.
void AgentCore::AwaitFailover(const pb::Cause& cause, Clock::time_point now) {
  const pb::Timeouts& timeouts = prepare_.job().timeouts();
  Log(CauseText(cause) + "; waiting for the front end to name another");
  const bool gives_up = hosts_rendezvous_;
  LeaveRendezvous();
  lost_by_ = cause;
  failover_by_ = now + kFailoverSlack +
                 milliseconds(timeouts.lease_ms() + 2 * timeouts.dead_ms() + timeouts.grace_ms() +
                              timeouts.teardown_ms());
  pb::RendezvousLost lost;
  lost.set_attempt(attempt_);
  lost.set_idle(phase_ == Phase::kIdle);
  *lost.mutable_cause() = cause;
  // The front end need not wait for the lease of a node that says that its ranks have ended.
  if (gives_up)
    given_up_ = std::move(lost);
  else
    EmitLost(std::move(lost));
  if (phase_ > Phase::kWorking) return;
  phase_ = Phase::kDraining;
  StopWorkers();
}

void AgentCore::EmitLost(pb::RendezvousLost lost) {
  pb::NodeEvent event;
  *event.mutable_rendezvous_lost() = std::move(lost);
  Emit(std::move(event));
}

void AgentCore::LeaveRendezvous() {
  hosts_rendezvous_ = false;
  joined_ = false;
  Do(agent_action::LeaveRendezvous());
}

Result<void> AgentCore::CheckFailover(const pb::FailoverRequest& request) const {
  if (!failover_by_ || stopping())
    return Error{ExitCode::kUnavailable, "this node does not wait for another rendezvous"};
  if (request.rendezvous_node() >= nodes_.size())
    return Error{ExitCode::kInternal, "the front end named a node that is not part of the job"};
  return {};
}

AgentActions AgentCore::OnFailover(const pb::FailoverRequest& request, Clock::time_point now) {
  MoveTo(request, now);
  return Take();
}

void AgentCore::MoveTo(const pb::FailoverRequest& request, Clock::time_point now) {
  failover_by_.reset();
  given_up_.reset();
  is_electing_ = false;
  prepare_.set_rendezvous_node(request.rendezvous_node());
  hosts_rendezvous_ = prepare_.node_index() == request.rendezvous_node();
  rendezvous_endpoints_.assign(request.rendezvous_endpoints().begin(),
                               request.rendezvous_endpoints().end());
  Log(nodes_.At(request.rendezvous_node()).name() + " hosts the rendezvous from now on");
  join_when_empty_ = phase_ == Phase::kDraining;
  if (!join_when_empty_) GoToRendezvous(now);
}

}  // namespace dslaunch
