// Numbers of attempts that are left out after a failover.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// The most attempts that the lost rendezvous may have begun without a node that is here. An attempt
// needs `min_nodes` nodes; `possible` nodes are not here, or were idle when they lost it. Each
// failed attempt uses up a restart; a node that joins begins one without that, but joins once.
constexpr uint64_t UnseenAttempts(size_t possible, size_t min_nodes, uint32_t restarts,
                                  uint32_t max_restarts) {
  if (possible < min_nodes) return 0;
  return max_restarts - std::min(restarts, max_restarts) + possible;
}

}  // namespace dslaunch
