// How the front end names another rendezvous when the one that decided is lost.
#include <algorithm>
#include <memory>
#include <utility>

#include "tests/sim/front_end.h"
#include "tests/sim/node_visit.h"

namespace dslaunch::sim {
namespace {

constexpr int64_t kCallTimeoutMs = 5'000;  // as in cli/session/agent_call.h

}  // namespace

void FrontEnd::OnRendezvousLost(size_t index, const pb::RendezvousLost& lost) {
  nodes_[index].awaits_move = true;
  nodes_[index].was_idle = lost.idle();
  if (!rendezvous_lost_ || lost.epoch() > rendezvous_lost_->epoch()) rendezvous_lost_ = lost;
}

bool FrontEnd::IsHostGone() const {
  const NodeState& host = nodes_[prepare_.rendezvous_node()];
  if (host.is_empty) return true;
  const Clock::duration silence =
      host.stream_ended ? Now() - host.heard_at : SilenceOf(host, Now());
  return silence >= GoneAfter(world_.job.timeouts());
}

std::vector<MoveView> FrontEnd::MoveViews() const {
  std::vector<MoveView> views;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const NodeState& node = nodes_[i];
    MoveView& view = views.emplace_back();
    view.connected = node.client != nullptr && !node.stream_ended;
    view.awaits_move = node.awaits_move;
    view.was_idle = node.was_idle;
    view.spare = world_.job.plan.nodes[i].spare;
    view.is_part = story_.IsPart(i);
    view.silent = SilenceOf(node, Now()) >= dead_after();
  }
  return views;
}

void FrontEnd::MoveIfHostIsGone() {
  if (!rendezvous_lost_ || moving_ || story_.ending() || !IsHostGone()) return;
  const std::optional<size_t> next = DecideMove(MoveViews(), prepare_.rendezvous_node());
  if (!next) return;
  Abandon(prepare_.rendezvous_node());
  if (story_.restarts() >= world_.job.policy().max_restarts()) return StopWithout();
  MoveTo(static_cast<uint32_t>(*next));
}

void FrontEnd::MoveTo(uint32_t host) {
  moving_ = true;
  const pb::MoveRequest request =
      MakeMoveRequest(host, {.lost = *rendezvous_lost_,
                             .epoch = std::max(story_.epoch(), begun_epoch_),
                             .restarts = story_.restarts(),
                             .max_restarts = world_.job.policy().max_restarts(),
                             .min_nodes = static_cast<size_t>(world_.job.plan.min_nodes),
                             .nodes = MoveViews()});
  begun_epoch_ = request.epoch() + 1;
  Say([&] { return "asks " + world_.NameOf(host) + " to decide: " + request.ShortDebugString(); });
  NodeVisit& visit = *nodes_[host].client;
  const uint64_t number = ++move_number_;
  Tell(visit, [this, &visit, host, number, sent = std::make_shared<pb::MoveRequest>(request)] {
    const bool ok = visit.Move(*sent, nullptr);
    const int64_t arrival =
        world_.network.Send(visit.up(), visit.node(), world_.network.front_end());
    world_.timeline.At(arrival, &process_,
                       [this, host, number, sent, ok, endpoint = visit.server()] {
                         if (number != move_number_ || !moving_) return;
                         if (ok) endpoint_ = endpoint;
                         OnMoveAnswer(host, *sent, ok);
                       });
  });
  world_.timeline.After(kCallTimeoutMs, &process_, [this, host, number] {
    if (number == move_number_ && moving_) OnMoveAnswer(host, {}, false);
  });
}

void FrontEnd::OnMoveAnswer(uint32_t host, const pb::MoveRequest& request, bool ok) {
  moving_ = false;
  if (story_.ending()) return;
  if (ok) return OnMoved(host, request);
  nodes_[host].awaits_move = false;
  Abandon(host);
}

void FrontEnd::OnMoved(uint32_t host, const pb::MoveRequest& request) {
  const pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  const size_t lost = prepare_.rendezvous_node();
  prepare_.set_rendezvous_node(host);
  if (nodes_[lost].ended) TryAgain(lost);
  story_.OnMoved(host, cause);
  ++moves_;
  Say([&] { return world_.NameOf(host) + " decides from now on"; });
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!std::exchange(nodes_[i].awaits_move, false) || i == host) continue;
    SendMove(i, request);
  }
}

void FrontEnd::SendMove(uint32_t index, const pb::MoveRequest& request) {
  NodeVisit& visit = *nodes_[index].client;
  const auto answered = std::make_shared<bool>(false);
  Tell(visit, [this, &visit, answered, endpoint = endpoint_,
               sent = std::make_shared<pb::MoveRequest>(request)] {
    const bool ok = visit.Move(*sent, endpoint);
    const int64_t arrival =
        world_.network.Send(visit.up(), visit.node(), world_.network.front_end());
    world_.timeline.At(arrival, &process_, [this, &visit, answered, ok] {
      if (!std::exchange(*answered, true) && !ok && IndexOf(visit)) Abandon(visit.node());
    });
  });
  world_.timeline.After(kCallTimeoutMs, &process_, [this, &visit, answered] {
    if (!std::exchange(*answered, true) && IndexOf(visit)) Abandon(visit.node());
  });
}

void FrontEnd::StopWithout() {
  const pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  connector_stopped_ = true;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].awaits_move && !nodes_[i].stream_ended) SendStop(i, cause);
  }
  ArmTeardownTimer();
}

}  // namespace dslaunch::sim
