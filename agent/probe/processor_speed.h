// Measures the speed of the processor and of the memory by short computations.
#pragma once

#include <cstdint>

#include "base/deadline.h"

namespace dslaunch {

struct ProcessorSpeed {
  uint64_t core_flops = 0;  // operations per second of the slowest thread, in its best slice
  // Processor time of all threads in thousandths of their elapsed time.
  uint32_t cpu_share_permille = 0;
};

// Returns the speed of matrix products on `threads` threads during `duration`, in slices of about a
// millisecond. Other programs rarely disturb the best slice, but they lower the share of processor
// time, as a cgroup's quota does. Blocks for `duration`. Precondition: threads > 0.
ProcessorSpeed MeasureProcessor(int threads, milliseconds duration);

struct MemorySpeed {
  uint64_t bytes_per_s = 0;  // speed of copying in the best pass; 0 without 32 MiB of free memory
  // Share of the time that the thread waited for a CPU, in thousandths.
  uint32_t starved_permille = 0;
};

// Returns the speed of copying memory during `duration`. Blocks for `duration`.
MemorySpeed MeasureMemory(milliseconds duration);

}  // namespace dslaunch
