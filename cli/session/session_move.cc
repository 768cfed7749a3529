// How a session goes on when the node that hosts the rendezvous is lost: it names another.
//
// Only the front end may: the nodes cannot tell a dead node from a cut network, and two halves that
// both go on would write over each other. It sees both sides, and waits until the lost node has
// surely ended its ranks: its keeper has ended, or it has been silent for as long as its own lease
// and all that follows from its end take. That its link is over says nothing: a cut network ends
// our side of it, and the node's side goes on.
#include <algorithm>
#include <utility>

#include "base/count.h"
#include "cli/session/session.h"

namespace dslaunch {

void LaunchSession::OnRendezvousLost(size_t index, const pb::RendezvousLost& lost) {
  nodes_[index].awaits_move = true;
  nodes_[index].was_idle = lost.idle();
  const bool is_first = !rendezvous_lost_;
  if (is_first || lost.epoch() > rendezvous_lost_->epoch()) rendezvous_lost_ = lost;
  if (is_first && !IsHostGone()) {
    Say(LogLevel::kWarning, lost.cause().message() +
                                "; going on without it as soon as it must have ended its ranks (" +
                                Seconds(options_.timeouts.lease_ms()) + " of silence)");
  }
}

bool LaunchSession::IsHostGone() const {
  const NodeState& host = nodes_[prepare_.rendezvous_node()];
  if (host.is_empty) return true;
  const Clock::time_point now = Clock::now();
  const SilenceWatch& silence = host.client->silence();
  return (host.stream_ended ? silence.SinceHeard(now) : silence.SilentFor(now)) >=
         GoneAfter(options_.timeouts);
}

std::vector<MoveView> LaunchSession::MoveViews() const {
  const Clock::time_point now = Clock::now();
  std::vector<MoveView> views;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const NodeState& node = nodes_[i];
    MoveView& view = views.emplace_back();
    view.connected = node.client && !node.stream_ended;
    view.awaits_move = node.awaits_move;
    view.was_idle = node.was_idle;
    view.spare = node.planned->spare;
    view.is_part = story_.IsPart(i);
    view.silent = node.client && node.client->silence().SilentFor(now) >= dead_after();
  }
  return views;
}

// Only Watch asks: it knows when this process stood still and silence means nothing.
void LaunchSession::MoveIfHostIsGone() {
  if (!rendezvous_lost_ || moving_ || story_.ending() || !IsHostGone()) return;
  const std::optional<size_t> next = DecideMove(MoveViews(), prepare_.rendezvous_node());
  if (!next) return;
  Abandon(prepare_.rendezvous_node());
  if (story_.restarts() >= options_.policy.max_restarts()) return StopWithout("no restart is left");
  MoveTo(*next);
}

void LaunchSession::MoveTo(size_t host) {
  moving_ = true;
  const pb::MoveRequest request =
      MakeMoveRequest(host, {.lost = *rendezvous_lost_,
                             .epoch = std::max(story_.epoch(), begun_epoch_),
                             .restarts = story_.restarts(),
                             .max_restarts = options_.policy.max_restarts(),
                             .min_nodes = static_cast<size_t>(options_.plan.min_nodes),
                             .nodes = MoveViews()});
  begun_epoch_ = request.epoch() + 1;
  nodes_[host].client->Move(request, [this, host, request](Result<pb::RendezvousOpened> opened) {
    moving_ = false;
    if (story_.ending()) return;
    if (!opened.ok()) {
      Say(LogLevel::kWarning, opened.error().message);
      nodes_[host].awaits_move = false;
      return Abandon(host);
    }
    *run_.mutable_rendezvous_endpoints() = opened->rendezvous_endpoints();
    OnMoved(host, request);
  });
}

void LaunchSession::OnMoved(size_t host, const pb::MoveRequest& request) {
  pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  const size_t lost = prepare_.rendezvous_node();
  prepare_.set_rendezvous_node(static_cast<uint32_t>(host));
  if (nodes_[lost].ended) TryAgain(lost);
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
