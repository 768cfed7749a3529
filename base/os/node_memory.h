// Determines how much memory this process may use.
#pragma once

#include <cstdint>

namespace dslaunch {

struct NodeMemory {
  uint64_t bytes = 0;
  uint64_t available_bytes = 0;
};

// Returns the total and available memory, in bytes, of the system, or of this process's cgroup if
// its limit is lower. Unknown values are 0.
NodeMemory ReadNodeMemory();

}  // namespace dslaunch
