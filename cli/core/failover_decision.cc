#include "cli/core/failover_decision.h"

#include <algorithm>

#include "proto/wire/lease.h"
#include "rendezvous/unseen_attempts.h"

namespace dslaunch {
milliseconds GoneAfter(const pb::Timeouts& timeouts) {
  return milliseconds(timeouts.dead_ms() + timeouts.lease_ms() + timeouts.grace_ms() +
                      timeouts.teardown_ms()) +
         Lease::kCatchUp;
}

std::optional<size_t> DecideFailover(const std::vector<FailoverView>& nodes, size_t lost_host) {
  std::optional<size_t> next;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const FailoverView& node = nodes[i];
    if (i == lost_host || !node.connected) continue;
    if (node.awaits_failover) {
      if (!next || (nodes[*next].spare && !node.spare)) next = i;
    } else if (node.is_part && !node.silent) {
      return std::nullopt;
    }
  }
  const FailoverView& host = nodes[lost_host];
  return !next && host.connected && host.awaits_failover ? std::optional(lost_host) : next;
}

bool IsHostCutOff(const std::vector<FailoverView>& nodes, size_t host) {
  size_t waiting = 0;
  for (size_t i = 0; i < nodes.size(); ++i)
    waiting += i != host && nodes[i].connected && nodes[i].awaits_failover ? 1 : 0;
  return waiting >= 2 && DecideFailover(nodes, host).has_value();
}

pb::FailoverRequest MakeFailoverRequest(size_t host, const FailoverInfo& info) {
  pb::FailoverRequest request;
  request.set_rendezvous_node(static_cast<uint32_t>(host));
  const auto possible = static_cast<size_t>(std::ranges::count_if(
      info.nodes, [](const FailoverView& node) { return !node.awaits_failover || node.was_idle; }));
  request.set_attempt(std::max(info.lost.attempt(), info.attempt) +
                      UnseenAttempts(possible, info.min_nodes, info.restarts, info.max_restarts));
  request.set_restarts(info.restarts + 1);
  *request.mutable_cause() = info.lost.cause();
  for (size_t i = 0; i < info.nodes.size(); ++i) {
    // The network may separate the host of the lost rendezvous from the new host, so the new
    // rendezvous does not wait for this node.
    const bool may_be_cut_off = i == info.lost_host && i != host;
    const bool is_awaited = info.nodes[i].awaits_failover && !may_be_cut_off;
    if (!is_awaited && !info.nodes[i].will_join) request.add_absent_nodes(static_cast<uint32_t>(i));
  }
  return request;
}

}  // namespace dslaunch
