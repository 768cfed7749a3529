// The speed of the processor and of the memory, by a short calculation.
#pragma once

#include <cstdint>

#include "base/deadline.h"

namespace dslaunch {

struct ProcessorSpeed {
  uint64_t core_flops = 0;          // rate of the slowest thread in its best slice
  uint32_t cpu_share_permille = 0;  // processor time of all threads / their elapsed time
};

// Multiplies matrices on `threads` threads for `duration`. A slice lasts about a millisecond, so
// other programs rarely disturb the best one; they lower the share instead, as a cgroup's quota
// does. Blocks for `duration`. Precondition: threads > 0.
ProcessorSpeed MeasureProcessor(int threads, milliseconds duration);

struct MemorySpeed {
  uint64_t bytes_per_s = 0;       // copied in the best pass; 0 if the node lacks the 32 MiB for it
  uint32_t starved_permille = 0;  // part of the time that the thread waited for a processor
};

// Copies memory for `duration`.
MemorySpeed MeasureMemory(milliseconds duration);

}  // namespace dslaunch
