// Defines the memory use of a rank, for reports and profiles.
#pragma once

#include <cstdint>

namespace dslaunch {

// Memory use of one rank in bytes, by category.
struct MemoryBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;    // accumulated gradients of the step
  int64_t buckets = 0;      // buffers for the exchange between ranks, without `gradients`
  int64_t optimizer = 0;    // optimizer states, including fp32 master weights
  int64_t buffers = 0;      // buffers of the model, such as running means
  int64_t activations = 0;  // tensors that are kept for backward passes; 0 if not measured
  int64_t tensors = 0;      // peak size of all tensors together; 0 if not measured
  int64_t peak_rss = 0;     // peak resident set of the process
};

}  // namespace dslaunch
