#include "trainer/precision/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace dslaunch {
namespace {

constexpr double kFactor = 2;

std::string Printed(double scale) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", scale);
  return text;
}

LossScaleDecision AfterOverflow(const LossScalerConfig& config, LossScalerState state) {
  LossScaleDecision decision;
  decision.skip_update = true;
  const std::string scale = "loss scale " + Printed(state.scale);
  if (!config.dynamic) {
    decision.reason = scale + " is static";
  } else if (config.hysteresis != 1 && state.hysteresis != 1) {
    --state.hysteresis;
    decision.reason = scale + " stays for " + std::to_string(state.hysteresis) + " more";
  } else if (state.scale == config.min_loss_scale && config.raise_error_at_min_scale) {
    decision.give_up = true;
    decision.reason = scale + " is the minimum; try bf16, or a lower learning rate";
  } else {
    state.scale = std::max(state.scale / kFactor, config.min_loss_scale);
    decision.reason = scale + " -> " + Printed(state.scale);
  }
  state.last_overflow = state.iteration;
  decision.next = state;
  return decision;
}

LossScaleDecision AfterGoodUpdate(const LossScalerConfig& config, LossScalerState state) {
  LossScaleDecision decision;
  if (config.dynamic) {
    const int64_t stable = state.iteration - state.last_overflow - 1;
    const bool grows = stable > 0 && stable % config.loss_scale_window == 0;
    if (grows || config.consecutive_hysteresis) state.hysteresis = config.hysteresis;
    if (grows) state.scale *= kFactor;
  }
  decision.next = state;
  return decision;
}

}  // namespace

LossScalerState InitialLossScalerState(const LossScalerConfig& config) {
  LossScalerState state;
  state.scale = config.dynamic ? std::ldexp(1.0, static_cast<int>(config.initial_scale_power))
                               : config.static_scale;
  state.hysteresis = config.hysteresis;
  return state;
}

LossScaleDecision UpdateLossScale(const LossScalerConfig& config, const LossScalerState& state,
                                  bool overflow) {
  LossScaleDecision decision =
      overflow ? AfterOverflow(config, state) : AfterGoodUpdate(config, state);
  ++decision.next.iteration;
  return decision;
}

}  // namespace dslaunch
