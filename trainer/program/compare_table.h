// A run in several precisions, side by side. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/train/window.h"

namespace dslaunch {

struct PrecisionResult {
  std::string precision;    // "bf16"
  double step_s = 0;        // the median
  double per_s = 0;         // samples or tokens, over all ranks
  double loss = 0;          // of the last step, over all ranks
  int64_t skipped = 0;      // steps, for their gradients overflowed
  int64_t peak_bytes = 0;   // the most that tensors took on a rank
  MemoryBytes memory = {};  // of each category the maximum over the ranks
};

// A column for each result; `unit` is "tokens" or "samples". Precondition: there is one.
std::string PrecisionTable(const std::vector<PrecisionResult>& results, const std::string& unit);

}  // namespace dslaunch
