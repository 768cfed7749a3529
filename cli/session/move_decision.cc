#include "cli/session/move_decision.h"

#include <algorithm>

#include "proto/wire/lease.h"

namespace dslaunch {
namespace {

// Failed epochs cost the lost rendezvous its restarts; a node that joins costs nothing, but comes
// once.
uint64_t UnheardEpochs(const MoveFacts& facts) {
  const auto possible = static_cast<size_t>(std::ranges::count_if(
      facts.nodes, [](const MoveView& node) { return !node.awaits_move || node.was_idle; }));
  if (possible < facts.min_nodes) return 0;
  return facts.max_restarts - std::min(facts.restarts, facts.max_restarts) + possible;
}

}  // namespace

milliseconds GoneAfter(const pb::Timeouts& timeouts) {
  return milliseconds(timeouts.dead_ms() + timeouts.lease_ms() + timeouts.grace_ms() +
                      timeouts.teardown_ms()) +
         Lease::kCatchUp;
}

std::optional<size_t> DecideMove(const std::vector<MoveView>& nodes, size_t lost_host) {
  std::optional<size_t> next;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const MoveView& node = nodes[i];
    if (i == lost_host || !node.connected) continue;
    if (node.awaits_move) {
      if (!next || (nodes[*next].spare && !node.spare)) next = i;
    } else if (node.is_part && !node.silent) {
      return std::nullopt;
    }
  }
  return next;
}

pb::MoveRequest MakeMoveRequest(size_t host, const MoveFacts& facts) {
  pb::MoveRequest request;
  request.set_rendezvous_node(static_cast<uint32_t>(host));
  request.set_epoch(std::max(facts.lost.epoch(), facts.epoch) + UnheardEpochs(facts));
  request.set_restarts(facts.restarts + 1);
  *request.mutable_cause() = facts.lost.cause();
  for (size_t i = 0; i < facts.nodes.size(); ++i) {
    if (!facts.nodes[i].awaits_move) request.add_absent_nodes(static_cast<uint32_t>(i));
  }
  return request;
}

}  // namespace dslaunch
