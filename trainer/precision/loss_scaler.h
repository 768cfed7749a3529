// Computes the scale by which fp16 training multiplies its loss, so that small gradients do not
// become zero. Pure: the next scale is a function of the state and of whether gradients overflowed.
//
// Follows the rules of DeepSpeed's ZeRO stages 1 to 3 at every stage. DeepSpeed's own stage 0 has
// no hysteresis, and continues at the smallest scale instead of failing.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/precision_config.h"

namespace dslaunch {

struct LossScalerState {
  double scale = 1;
  int64_t iteration = 0;  // number of attempted updates so far, including skipped ones
  int64_t last_overflow = -1;
  int64_t hysteresis = 0;  // number of overflows until the scale is halved, at least 1
};

struct LossScaleDecision {
  LossScalerState next;
  // True if gradients are not finite, so that parameters and schedule must not change.
  bool skip_update = false;
  bool give_up = false;  // true if, in addition, the scale cannot be lowered further
  std::string reason;    // message about the change of the scale; empty without an overflow
};

LossScalerState InitialLossScalerState(const LossScalerConfig& config);

// Returns the decision after one attempted update. `overflow` is true if a gradient on any rank is
// not finite.
LossScaleDecision UpdateLossScale(const LossScalerConfig& config, const LossScalerState& state,
                                  bool overflow);

}  // namespace dslaunch
