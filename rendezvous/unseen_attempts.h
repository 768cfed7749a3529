// Computes how many attempt numbers are skipped after a failover.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// Returns the largest number of attempts that the lost rendezvous may have begun without any node
// that is present now. An attempt needs `min_nodes` nodes; `possible` nodes are absent, or were
// idle when they lost the rendezvous. Each failed attempt uses a restart; a joining node begins an
// attempt without a restart, but joins only once.
constexpr uint64_t UnseenAttempts(size_t possible, size_t min_nodes, uint32_t restarts,
                                  uint32_t max_restarts) {
  if (possible < min_nodes) return 0;
  return max_restarts - std::min(restarts, max_restarts) + possible;
}

}  // namespace dslaunch
