// What a rank holds in memory, as reports and profiles have it.
#pragma once

#include <cstdint>

namespace dslaunch {

// Bytes of one rank by what they hold.
struct MemoryBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;    // accumulated
  int64_t buckets = 0;      // what travels between the ranks beside them
  int64_t optimizer = 0;    // with fp32 master weights
  int64_t buffers = 0;      // of the model
  int64_t activations = 0;  // left by a forward pass to its backward pass, where it is measured
  int64_t tensors = 0;      // most bytes of all tensors at one time; 0: not measured
  int64_t peak_rss = 0;     // most memory that the process has had at any time
};

}  // namespace dslaunch
