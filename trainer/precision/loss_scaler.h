// The scale by which fp16 training multiplies its loss, so that small gradients do not become zero.
// Pure: what becomes of the scale is a function of its state and of whether gradients overflowed.
//
// These are the rules of DeepSpeed's ZeRO stages, at every stage. DeepSpeed's own stage 0 knows no
// hysteresis, and goes on at the smallest scale instead of giving up.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/precision_config.h"

namespace dslaunch {

struct LossScalerState {
  double scale = 1;
  int64_t iteration = 0;  // updates tried so far, skipped ones included
  int64_t last_overflow = -1;
  int64_t hysteresis = 0;  // overflows that are left until the scale halves, at least 1
};

struct LossScaleDecision {
  LossScalerState next;
  bool skip_update = false;  // gradients are not finite: leave parameters and schedule alone
  bool give_up = false;      // and the scale cannot be lowered any more
  std::string reason;        // what became of the scale, for people; empty without an overflow
};

LossScalerState InitialLossScalerState(const LossScalerConfig& config);

// What follows from one try of an update. `overflow`: some gradient, on any rank, is not finite.
LossScaleDecision UpdateLossScale(const LossScalerConfig& config, const LossScalerState& state,
                                  bool overflow);

}  // namespace dslaunch
