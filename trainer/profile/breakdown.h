// Formats a report of the phases of a training step and their durations (wall_clock_breakdown).
// Pure.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

// The seconds that optimizer steps spent in each phase on one rank.
struct PhaseTimes {
  double data = 0;     // time spent waiting for the data loader
  double forward = 0;  // time of the forward pass, including the loss
  // Time of the backward pass, including the part of the gradient exchange that the step waits for.
  double backward = 0;
  double update = 0;
  // In pipelines, the time of everything except data, because the passes of micro-batches
  // interleave.
  double batch = 0;

  PhaseTimes& operator+=(const PhaseTimes& other);
};

// Returns "step 20: data 0.1 ms, forward 12.0 ms, backward 31.4 ms, update 2.2 ms; passes without
// waiting 40.1 ms; mean step 46.0 ms". `times`, `compute_s` and `seconds` are sums over `steps`
// steps. `compute_s` is the time of the passes without waiting for other ranks; 0 if unknown.
std::string BreakdownLine(int64_t step, const PhaseTimes& times, double compute_s, double seconds,
                          int64_t steps);

}  // namespace dslaunch
