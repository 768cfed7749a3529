// Computes how many attempt numbers a new rendezvous skips after a failover.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dslaunch {

// Returns the largest number of attempts that the lost rendezvous may have begun without the nodes
// that are present now. An attempt needs `min_nodes` nodes; `possible` is the number of nodes that
// are absent, or were idle when they lost the rendezvous. Each failed attempt uses up a restart. A
// joining node begins an attempt without using a restart, but each node joins only once.
constexpr uint64_t UnseenAttempts(size_t possible, size_t min_nodes, uint32_t restarts,
                                  uint32_t max_restarts) {
  if (possible < min_nodes) return 0;
  return max_restarts - std::min(restarts, max_restarts) + possible;
}

}  // namespace dslaunch
