// The memory of a rank, for reports and profiles.
#pragma once

#include <cstdint>

namespace dslaunch {

// Bytes of one rank by category.
struct MemoryBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;    // accumulated gradients
  int64_t buckets = 0;      // buffers for exchange between ranks, besides gradients
  int64_t optimizer = 0;    // including fp32 master weights
  int64_t buffers = 0;      // buffers of the model
  int64_t activations = 0;  // tensors that a forward pass keeps for backward, if measured
  int64_t tensors = 0;      // maximum of all tensors together; 0 if not measured
  int64_t peak_rss = 0;     // maximum memory of the process
};

}  // namespace dslaunch
