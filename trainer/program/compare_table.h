// Formats a table that compares runs in several precisions. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/train/window.h"

namespace dslaunch {

struct PrecisionResult {
  std::string precision;    // name of the dtype, such as "bf16"
  double step_s = 0;        // median duration of a step
  double per_s = 0;         // samples or tokens per second, over all ranks
  double loss = 0;          // loss of the last step, over all ranks
  int64_t skipped = 0;      // steps skipped because their gradients overflowed
  int64_t peak_bytes = 0;   // peak memory of tensors, maximum over the ranks
  MemoryBytes memory = {};  // maximum over the ranks of each category
};

// Returns a table with a column for each result. `unit` is "tokens" or "samples". Precondition:
// `results` is not empty.
std::string PrecisionTable(const std::vector<PrecisionResult>& results, const std::string& unit);

}  // namespace dslaunch
