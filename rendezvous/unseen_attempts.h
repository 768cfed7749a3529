// Computes how many attempt numbers a new rendezvous skips after a failover, so that it does not
// reuse a number of the lost rendezvous.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// Returns an upper bound on the number of attempts that the lost rendezvous began and that no node
// reported to the new rendezvous. `possible` is the number of nodes that may have had ranks in such
// attempts: nodes that are absent now, and nodes that had no ranks when they lost the rendezvous.
// Returns 0 if fewer than `min_nodes` are possible, because every attempt needs `min_nodes`.
//
// Otherwise the bound has two parts. Each attempt that follows a failure uses up a restart, of
// which max_restarts - `restarts` are left. Each possible node may also join the job once, which
// begins an attempt without using up a restart.
constexpr uint64_t UnseenAttempts(size_t possible, size_t min_nodes, uint32_t restarts,
                                  uint32_t max_restarts) {
  if (possible < min_nodes) return 0;
  return max_restarts - std::min(restarts, max_restarts) + possible;
}

}  // namespace dslaunch
