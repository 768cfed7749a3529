// Implements the ends of supervisor and agent.
#include <algorithm>
#include <memory>
#include <utility>

#include "tests/sim/front_end.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {

int64_t NodeIncarnation::LeaseEndsBy() {
  if (core_.front_end().detached()) return INT64_MAX;
  const pb::Timeouts& timeouts = world_.job.timeouts();
  const int64_t end = renewal_sent_ + timeouts.dead_ms() + timeouts.lease_ms();
  return std::max(end, machine().went_on_at + Lease::kCatchUp.count()) + timeouts.heartbeat_ms();
}

// Ends the agent, by itself or killed. Its descriptors are closed in both cases.
void NodeIncarnation::EndAgent(bool killed) {
  if (loop_.gone) return;
  loop_.gone = threads_.gone = true;
  Note([] { return "the agent ends"; });
  if (server_ != nullptr) server_->Close();
  if (attended_ != nullptr) attended_->BreakOff(session_);
  WithdrawVote();
  if (supervisor_.gone()) return;
  if (!detached_events_ && !ended_events_) {
    const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
    world_.timeline.At(arrival, &world_.front_end->process(),
                       [this] { world_.front_end->OnStreamEnd(*this); });
  }
  supervisor_.OnAgentGone(killed);
}

void NodeIncarnation::KillAgent() { EndAgent(/*killed=*/true); }

void NodeIncarnation::OnSupervisorFinished() {
  Note([] { return "the supervisor ends"; });
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*supervisor_ended=*/true); });
}

// Reports the supervisor's end. Its workers have died with it.
void NodeIncarnation::OnSupervisorKilled() {
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*supervisor_ended=*/true); });
  world_.timeline.Do(loop_, [this] { OnSupervisorGone(); });
}

void NodeIncarnation::KillBoth() {
  KillSupervisor();
  KillAgent();
}

void NodeIncarnation::LosePower() {
  loop_.gone = threads_.gone = true;
  supervisor_.LosePower();
}

void NodeIncarnation::GetPowerBack() {
  if (!is_over()) return;
  if (server_ != nullptr) server_->Close();
  if (attended_ != nullptr) attended_->Leave(session_);
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*supervisor_ended=*/false); });
}

void NodeIncarnation::ResetRendezvous() {
  if (attended_ != nullptr && attended_ != server_) attended_->Reset(session_);
}

void NodeIncarnation::ResetLink() {
  const Place front_end = world_.network.front_end();
  world_.timeline.At(world_.network.Send(up_, node_, front_end), &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*supervisor_ended=*/false); });
  world_.timeline.At(world_.network.Send(down_, front_end, node_), &supervisor(),
                     [this] { OnFrontEndEof(); });
}

}  // namespace dslaunch::sim
