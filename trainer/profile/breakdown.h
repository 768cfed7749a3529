// Where a training step's time went (wall_clock_breakdown). Pure.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

// Seconds of optimizer steps on one rank.
struct PhaseTimes {
  double data = 0;      // waiting for the loader
  double forward = 0;   // with the loss
  double backward = 0;  // with the exchange of gradients as far as it is waited for
  double update = 0;
  double batch = 0;  // of a pipeline: all of it but the data, for its passes interleave

  PhaseTimes& operator+=(const PhaseTimes& other);
};

// "step 20: data 0.1 ms, forward 12.0 ms, backward 31.4 ms, update 2.2 ms; passes without waiting
// 40.1 ms; mean step 46.0 ms". `times` and `compute_s` (of the passes, waiting for other ranks left
// out; 0: not known) are sums over the `steps` that took `seconds` together.
std::string BreakdownLine(int64_t step, const PhaseTimes& times, double compute_s, double seconds,
                          int64_t steps);

}  // namespace dslaunch
