// Formats a table of training runs in several precisions. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/train/window.h"

namespace dslaunch {

struct PrecisionResult {
  std::string precision;    // name of the dtype, such as "bf16"
  double step_s = 0;        // median duration of a step in seconds
  double per_s = 0;         // samples or tokens per second, over all ranks
  double loss = 0;          // loss of the last step, mean over the ranks
  int64_t skipped = 0;      // number of steps whose gradients overflowed
  int64_t peak_bytes = 0;   // peak bytes of tensors, maximum over the ranks
  MemoryBytes memory = {};  // maximum over the ranks in each category of memory
};

// Returns a table with one column for each result. `unit`, "tokens" or "samples", is the unit of
// PrecisionResult::per_s. Precondition: `results` is not empty.
std::string PrecisionTable(const std::vector<PrecisionResult>& results, const std::string& unit);

}  // namespace dslaunch
