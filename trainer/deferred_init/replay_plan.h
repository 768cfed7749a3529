// Determines which deferred operations must run, and until when their results are needed. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace dslaunch {

// An operation, described by the values that it uses. A value is the content of a piece of memory
// between two operations that overwrite all of the memory. An operation that writes only a part of
// the memory both reads and writes the value.
struct DeferredStep {
  std::vector<size_t> reads, writes;  // indices of the values
  // True if the operation draws random numbers, so that its order matters.
  bool draws = false;
};

struct ReplayPlan {
  std::vector<bool> runs;  // true for each step that must run
  // For each value, the last executed step that uses it; nullopt if none does.
  std::vector<std::optional<size_t>> last_step;
};

// Returns a plan that runs, in order, the steps that draw random numbers and the steps on which a
// value of `wanted` depends. `values` is the number of values.
ReplayPlan PlanReplay(const std::vector<DeferredStep>& steps, size_t values,
                      const std::vector<size_t>& wanted);

}  // namespace dslaunch
