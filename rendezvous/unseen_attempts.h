// Attempt numbers that are skipped after a failover.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// Returns the most attempts that the lost rendezvous may have begun without any node present here.
// An attempt needs `min_nodes` nodes; `possible` nodes are absent, or were idle when they lost the
// rendezvous. Each failed attempt uses up a restart; a joining node begins one without a restart,
// but joins only once.
constexpr uint64_t UnseenAttempts(size_t possible, size_t min_nodes, uint32_t restarts,
                                  uint32_t max_restarts) {
  if (possible < min_nodes) return 0;
  return max_restarts - std::min(restarts, max_restarts) + possible;
}

}  // namespace dslaunch
