// Computes the scale by which fp16 training multiplies its loss, so that small gradients do not
// become zero. Pure: the next scale is a function of the state and of whether gradients overflowed.
//
// At every ZeRO stage, the rules are those of DeepSpeed's stages 1 to 3. DeepSpeed's own stage 0
// has no hysteresis, and continues at the smallest scale instead of failing.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/precision_config.h"

namespace dslaunch {

struct LossScalerState {
  double scale = 1;
  int64_t iteration = 0;  // number of attempted updates, including skipped updates
  int64_t last_overflow = -1;
  int64_t hysteresis = 0;  // remaining overflows until the scale is halved, at least 1
};

struct LossScaleDecision {
  LossScalerState next;
  // True if a gradient is NaN or infinite, so that parameters and schedule must not change.
  bool skip_update = false;
  bool give_up = false;  // true if, in addition, the scale has reached its minimum
  std::string reason;    // message about the change of the scale; empty without an overflow
};

LossScalerState InitialLossScalerState(const LossScalerConfig& config);

// Returns the decision after one attempted update. `overflow` is true if a gradient on any rank is
// NaN or infinite.
LossScaleDecision UpdateLossScale(const LossScalerConfig& config, const LossScalerState& state,
                                  bool overflow);

}  // namespace dslaunch
