#include "cli/move_decision.h"

#include <algorithm>

namespace dslaunch {

milliseconds GoneAfter(const pb::Timeouts& timeouts) {
  return milliseconds(timeouts.lease_ms() + timeouts.grace_ms() + timeouts.teardown_ms());
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

pb::MoveRequest MakeMoveRequest(size_t host, const pb::RendezvousLost& lost, uint64_t epoch,
                                uint32_t restarts, const std::vector<MoveView>& nodes) {
  pb::MoveRequest request;
  request.set_rendezvous_node(static_cast<uint32_t>(host));
  request.set_epoch(std::max(lost.epoch(), epoch));
  request.set_restarts(restarts + 1);
  *request.mutable_cause() = lost.cause();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].awaits_move) request.add_absent_nodes(static_cast<uint32_t>(i));
  }
  return request;
}

}  // namespace dslaunch
