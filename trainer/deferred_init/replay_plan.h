// Which of the operations that were put off have to run, and how long their results are needed.
// Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace dslaunch {

// A value is what a piece of memory holds from an operation that gives all of it something new, to
// the last one before the next such operation. Operations that write into a part of it both read
// and write it.
struct DeferredStep {
  std::vector<size_t> reads, writes;  // values, by number
  bool draws = false;                 // random numbers: it takes part in their order
};

struct ReplayPlan {
  std::vector<bool> runs;                        // of each step
  std::vector<std::optional<size_t>> last_step;  // of each value: the last that runs and touches it
};

// Of the steps, in their order, keeps those that draw random numbers and those on which a value of
// `wanted` depends. There are `values` values.
ReplayPlan PlanReplay(const std::vector<DeferredStep>& steps, size_t values,
                      const std::vector<size_t>& wanted);

}  // namespace dslaunch
