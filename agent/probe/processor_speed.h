// Measures the speed of the processor and of the memory by a short calculation.
#pragma once

#include <cstdint>

#include "base/deadline.h"

namespace dslaunch {

struct ProcessorSpeed {
  uint64_t core_flops = 0;          // operations per second of the slowest thread in its best slice
  uint32_t cpu_share_permille = 0;  // processor time of all threads / their elapsed time
};

// Multiplies matrices on `threads` threads for `duration`, in slices of about a millisecond. Other
// programs rarely disturb the best slice. They lower the share of processor time instead, as a
// cgroup's quota does. Blocks for `duration`. Precondition: threads > 0.
ProcessorSpeed MeasureProcessor(int threads, milliseconds duration);

struct MemorySpeed {
  uint64_t bytes_per_s = 0;       // bytes copied in the best pass, per second; 0 without 32 MiB
  uint32_t starved_permille = 0;  // part of the time in which the thread waited for a processor
};

// Copies memory for `duration`, which blocks as long.
MemorySpeed MeasureMemory(milliseconds duration);

}  // namespace dslaunch
