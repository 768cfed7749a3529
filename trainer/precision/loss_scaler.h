// The scale by which fp16 training multiplies its loss, so that small gradients do not become zero.
// Pure: the next scale is a function of the state and of whether gradients overflowed.
//
// Follows the rules of DeepSpeed's ZeRO stages, at every stage. DeepSpeed's own stage 0 has no
// hysteresis, and continues at the smallest scale instead of failing.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/precision_config.h"

namespace dslaunch {

struct LossScalerState {
  double scale = 1;
  int64_t iteration = 0;  // updates tried so far, including skipped ones
  int64_t last_overflow = -1;
  int64_t hysteresis = 0;  // overflows left until the scale is halved, at least 1
};

struct LossScaleDecision {
  LossScalerState next;
  bool skip_update = false;  // gradients are not finite: leave parameters and schedule unchanged
  bool give_up = false;      // in addition, the scale cannot be lowered any more
  std::string reason;        // text about the change of the scale; empty without an overflow
};

LossScalerState InitialLossScalerState(const LossScalerConfig& config);

// Returns the consequence of one try of an update. `overflow` is true if a gradient on any rank is
// not finite.
LossScaleDecision UpdateLossScale(const LossScalerConfig& config, const LossScalerState& state,
                                  bool overflow);

}  // namespace dslaunch
