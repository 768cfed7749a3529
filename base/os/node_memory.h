// Determines how much memory this process may use.
#pragma once

#include <cstdint>

namespace dslaunch {

struct NodeMemory {
  uint64_t bytes = 0;
  uint64_t available_bytes = 0;
};

// Returns the memory of the system, or the limit of the process's cgroup if that is lower. A value
// is 0 if unknown.
NodeMemory ReadNodeMemory();

}  // namespace dslaunch
