// A node and its rendezvous.
#include <memory>
#include <utility>

#include "agent/node/rendezvous_options.h"
#include "proto/wire/cause.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {
namespace {

constexpr milliseconds kFailoverSlack(10'000);  // as in agent/node/node_agent_rendezvous.cc

}  // namespace

void NodeIncarnation::OpenRendezvous(const pb::FailoverRequest& last,
                                     std::optional<uint32_t> lost_node) {
  world_.rendezvous.push_back(
      std::make_unique<Rendezvous>(world_, *this, RendezvousOptions(prepare_, last), lost_node));
  server_ = world_.rendezvous.back().get();
}

void NodeIncarnation::GoToRendezvous() {
  if (server_ != nullptr) {
    target_ = server_;
    return Join();
  }
  FindRendezvous(Now() + milliseconds(prepare_.timeouts().join_ms()));
}

void NodeIncarnation::FindRendezvous(Clock::time_point deadline) {
  const uint32_t host = target_->host().node();
  const bool found = target_->is_open() && !world_.network.IsCut(node_, host) &&
                     !world_.network.IsCut(host, node_) && !world_.machines[host].off;
  if (found)
    return world_.timeline.After(world_.random.Between(5, 200), &loop_, [this] { Join(); });
  if (Now() >= deadline) {
    if (stopping()) return;
    closed_ = true;
    return BeginStop(
        OwnCause(pb::Cause::TIMED_OUT, ExitCode::kTimedOut, ": the rendezvous cannot be reached"));
  }
  world_.timeline.After(500, &loop_, [this, deadline] { FindRendezvous(deadline); });
}

void NodeIncarnation::Join() {
  if (stopping()) return;
  attended_ = target_;
  session_ = attended_->Attend(*this);
  last_seen_ = Now();
  pb::AgentMessage message;
  pb::Join& join = *message.mutable_join();
  join.set_slots(world_.job.node(node_).slots());
  join.set_identity("machine" + std::to_string(node_));
  join.set_master_port(static_cast<uint32_t>(world_.random.Between(1'024, 60'000)));
  if (server_ == nullptr) {
    join.set_reached_at("10.0.0." + std::to_string(attended_->host().node() + 1));
    join.set_address("10.0.0." + std::to_string(node_ + 1));
  }
  message.set_job_id("job");
  message.set_node_index(node_);
  attended_->Handle(session_, std::move(message));
}

void NodeIncarnation::SendToRendezvous(pb::AgentMessage message) {
  if (attended_ == nullptr || closed_) return;
  message.set_job_id("job");
  message.set_node_index(node_);
  message.set_attempt(attempt_);
  attended_->Handle(session_, std::move(message));
}

void NodeIncarnation::OnRendezvousMessage(const Rendezvous& from, SessionId session,
                                          const pb::RendezvousMessage& message) {
  if (&from != attended_ || session != session_) return;
  last_seen_ = Now();
  switch (message.message_case()) {
    case pb::RendezvousMessage::kAssignment:
      return OnAssignment(message);
    case pb::RendezvousMessage::kHalt:
      return OnHalt(message.attempt(), message.halt());
    case pb::RendezvousMessage::kStop:
      return BeginStop(message.stop().cause());
    case pb::RendezvousMessage::kRefused:
      BeginStop(message.refused().cause());
      return OnClosed({});
    case pb::RendezvousMessage::kClosed:
      done_.set_closed(true);
      return OnClosed(message.closed());
    default:
      return;
  }
}

void NodeIncarnation::OnRendezvousEnd(const Rendezvous& from, SessionId session) {
  if (&from == attended_ && session == session_) LoseRendezvous();
}

void NodeIncarnation::LoseRendezvous() {
  if (closed_) return;
  const uint32_t host = prepare_.rendezvous_node();
  pb::Cause cause = MakeCause(pb::Cause::NODE_LOST, host, ExitCode::kUnavailable,
                              world_.NameOf(host) + " was lost: its rendezvous broke off");
  cause.set_attempt(attempt_);
  if (MayFailOver()) return AwaitFailover(cause);
  BeginStop(cause);
  OnClosed({});
}

bool NodeIncarnation::MayFailOver() const {
  return prepare_.policy().max_restarts() > 0 && server_ == nullptr && !stopping() &&
         !front_end_gone_ && !stream_over_at_;
}

void NodeIncarnation::AwaitFailover(const pb::Cause& cause) {
  Log([&] { return "waits for the front end to name another: " + cause.message(); });
  const pb::Timeouts& timeouts = prepare_.timeouts();
  LeaveRendezvous();
  lost_by_ = cause;
  failover_by_ = Now() + kFailoverSlack +
                 milliseconds(timeouts.lease_ms() + 2 * timeouts.dead_ms() + timeouts.grace_ms() +
                              timeouts.teardown_ms());
  pb::NodeEvent event;
  event.mutable_rendezvous_lost()->set_attempt(attempt_);
  event.mutable_rendezvous_lost()->set_idle(phase_ == Phase::kIdle);
  *event.mutable_rendezvous_lost()->mutable_cause() = cause;
  Emit(std::move(event));
  if (phase_ > Phase::kWorking) return;
  phase_ = Phase::kHalting;
  StopWorkers(/*kill_now=*/false);
}

void NodeIncarnation::LeaveRendezvous() {
  if (server_ != nullptr) std::exchange(server_, nullptr)->Close();
  if (attended_ != nullptr) std::exchange(attended_, nullptr)->Leave(session_);
}

void NodeIncarnation::OnClosed(const pb::Closed& word) {
  if (std::exchange(closed_, true)) return;
  done_.set_teardown_complete(word.complete());
  *done_.mutable_cause() = word.cause();
  *done_.mutable_members() = word.members();
  *done_.mutable_victims() = word.victims();
  EndIfAllIsReported();
  QuitIfIdle();
}

}  // namespace dslaunch::sim
