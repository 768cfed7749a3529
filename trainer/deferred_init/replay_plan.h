// Determines which deferred operations must run, and how long their results are needed. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace dslaunch {

// A value is the content of a piece of memory from an operation that overwrites all of it until the
// next such operation. Operations that write a part of it both read and write the value.
struct DeferredStep {
  std::vector<size_t> reads, writes;  // indices of values
  bool draws = false;                 // draws random numbers, so its order matters
};

struct ReplayPlan {
  std::vector<bool> runs;  // whether each step runs
  // For each value, the last step that runs and uses it.
  std::vector<std::optional<size_t>> last_step;
};

// Keeps the steps that draw random numbers and those on which a value of `wanted` depends, in
// order. There are `values` values.
ReplayPlan PlanReplay(const std::vector<DeferredStep>& steps, size_t values,
                      const std::vector<size_t>& wanted);

}  // namespace dslaunch
