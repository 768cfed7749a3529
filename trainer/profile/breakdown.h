// Shows where the time of a training step went (wall_clock_breakdown). Pure.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

// Seconds of optimizer steps on one rank.
struct PhaseTimes {
  double data = 0;      // waiting for the loader
  double forward = 0;   // including the loss
  double backward = 0;  // including the part of the gradient exchange that is waited for
  double update = 0;
  double batch = 0;  // pipelines: everything except data, because passes interleave

  PhaseTimes& operator+=(const PhaseTimes& other);
};

// Returns "step 20: data 0.1 ms, forward 12.0 ms, backward 31.4 ms, update 2.2 ms; passes without
// waiting 40.1 ms; mean step 46.0 ms". `times` and `compute_s` (of the passes, without waiting for
// other ranks; 0 if unknown) are sums over the `steps` that took `seconds` together.
std::string BreakdownLine(int64_t step, const PhaseTimes& times, double compute_s, double seconds,
                          int64_t steps);

}  // namespace dslaunch
