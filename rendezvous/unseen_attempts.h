// Numbers of attempts that are left out after a failover.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// How many attempts the lost rendezvous may have begun that nobody here knows of: with
// `possible` nodes, which are not here or were idle when they lost it, and where at least
// `min_nodes` form one. Failed attempts cost it its restarts; a node that joins costs nothing, but
// comes once.
constexpr uint64_t UnseenAttempts(size_t possible, size_t min_nodes, uint32_t restarts,
                                  uint32_t max_restarts) {
  if (possible < min_nodes) return 0;
  return max_restarts - std::min(restarts, max_restarts) + possible;
}

}  // namespace dslaunch
