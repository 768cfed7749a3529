// Determines how much memory this process may use.
#pragma once

#include <cstdint>

namespace dslaunch {

struct NodeMemory {
  uint64_t bytes = 0;
  uint64_t available_bytes = 0;
};

// Returns the memory of the system, or the limit of this process's cgroup if the limit is lower.
// Unknown values are 0.
NodeMemory ReadNodeMemory();

}  // namespace dslaunch
