// How a session goes on when the node that hosts the rendezvous is lost: it names another.
//
// Only the front end may: the nodes cannot tell a dead node from a cut network, and two halves that
// both go on would write over each other. It sees both sides, and waits until the lost node has
// surely ended its ranks: its link is over, or it has been silent for as long as its own lease and
// all that follows from its end take.
#include <algorithm>
#include <utility>

#include "cli/count.h"
#include "cli/session.h"

namespace dslaunch {

void LaunchSession::OnRendezvousLost(size_t index, const pb::RendezvousLost& lost) {
  nodes_[index].awaits_move = true;
  const bool is_first = !rendezvous_lost_;
  if (is_first || lost.epoch() > rendezvous_lost_->epoch()) rendezvous_lost_ = lost;
  if (is_first && !IsHostGone()) {
    Say(LogLevel::kWarning, lost.cause().message() +
                                "; going on without it as soon as it must have ended its ranks (" +
                                Seconds(options_.timeouts.lease_ms()) + " of silence)");
  }
  MoveIfHostIsGone();
}

bool LaunchSession::IsHostGone() const {
  const NodeState& host = nodes_[prepare_.rendezvous_node()];
  if (host.ended) return true;
  const pb::Timeouts& timeouts = options_.timeouts;
  return host.client->silence().SilentFor(Clock::now()) >=
         milliseconds(timeouts.lease_ms() + timeouts.grace_ms() + timeouts.teardown_ms());
}

// All that can still be heard must have noticed: else one of them would go on in the old epoch.
void LaunchSession::MoveIfHostIsGone() {
  if (!rendezvous_lost_ || moving_ || story_.ending() || !IsHostGone()) return;
  std::optional<size_t> next;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const NodeState& node = nodes_[i];
    if (i == prepare_.rendezvous_node() || !node.client || node.stream_ended) continue;
    if (node.awaits_move) {
      if (!next || (nodes_[*next].planned->spare && !node.planned->spare)) next = i;
    } else if (story_.IsPart(i) && node.client->silence().SilentFor(Clock::now()) < dead_after()) {
      return;
    }
  }
  if (!next) return;
  Abandon(prepare_.rendezvous_node());
  if (story_.restarts() >= options_.policy.max_restarts()) return StopWithout("no restart is left");
  MoveTo(*next);
}

void LaunchSession::MoveTo(size_t host) {
  moving_ = true;
  pb::MoveRequest request;
  request.set_rendezvous_node(static_cast<uint32_t>(host));
  request.set_epoch(std::max(rendezvous_lost_->epoch(), story_.epoch()));
  request.set_restarts(story_.restarts() + 1);
  *request.mutable_cause() = rendezvous_lost_->cause();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].awaits_move) request.add_absent_nodes(static_cast<uint32_t>(i));
  }
  nodes_[host].client->Move(request, [this, host, request](Result<pb::RendezvousOpened> opened) {
    moving_ = false;
    if (story_.ending()) return;
    if (!opened.ok()) {
      Say(LogLevel::kWarning, opened.error().message);
      nodes_[host].awaits_move = false;
      Abandon(host);
      return MoveIfHostIsGone();
    }
    *run_.mutable_rendezvous_endpoints() = opened->rendezvous_endpoints();
    OnMoved(host, request);
  });
}

void LaunchSession::OnMoved(size_t host, const pb::MoveRequest& request) {
  pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  prepare_.set_rendezvous_node(static_cast<uint32_t>(host));
  Say(LogLevel::kWarning, story_.OnMoved(host, cause));
  pb::MoveRequest follow = request;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!std::exchange(nodes_[i].awaits_move, false) || i == host) continue;
    const std::vector<std::string> endpoints = EndpointsFor(i);
    *follow.mutable_rendezvous_endpoints() = {endpoints.begin(), endpoints.end()};
    nodes_[i].client->Move(follow, [this, i](Result<pb::RendezvousOpened> moved) {
      if (moved.ok()) return;
      Say(LogLevel::kWarning, moved.error().message);
      Abandon(i);
    });
  }
}

void LaunchSession::StopWithout(const std::string& why) {
  pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  Say(LogLevel::kWarning, "no restart: " + why);
  connector_.Stop();
  for (const NodeState& node : nodes_) {
    if (node.awaits_move && !node.stream_ended) node.client->Stop(cause, /*kill_now=*/false);
  }
  ArmTeardownTimer();
}

}  // namespace dslaunch
