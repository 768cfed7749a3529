#include "dslaunch/loss_scale.h"

#include <ATen/ATen.h>

#include <cmath>
#include <set>
#include <vector>

#include "trainer/base/train_error.h"
#include "trainer/precision/gradients.h"
#include "trainer/precision/loss_scaler.h"

namespace dslaunch {
namespace {

LossScalerConfig ToConfig(const LossScaleOptions& options) {
  const auto check = [](bool good, const std::string& problem) {
    if (!good) throw TrainError(ExitCode::kBadInput, "LossScaleOptions::" + problem);
  };
  check(std::isfinite(options.loss_scale) && options.loss_scale >= 0,
        "loss_scale must be 0 (dynamic) or a positive number");
  check(options.initial_scale_power >= 0 && options.initial_scale_power <= 126,
        "initial_scale_power must be from 0 to 126");
  check(options.loss_scale_window > 0, "loss_scale_window must be positive");
  check(options.hysteresis > 0, "hysteresis must be positive");
  check(std::isfinite(options.min_loss_scale) && options.min_loss_scale > 0,
        "min_loss_scale must be a positive number");
  LossScalerConfig config;
  config.dynamic = options.loss_scale == 0;
  config.static_scale = options.loss_scale;
  config.initial_scale_power = options.initial_scale_power;
  config.loss_scale_window = options.loss_scale_window;
  config.hysteresis = options.hysteresis;
  config.consecutive_hysteresis = options.consecutive_hysteresis;
  config.min_loss_scale = options.min_loss_scale;
  return config;
}

}  // namespace

struct LossScale::State {
  LossScalerConfig config;
  LossScalerState scaler = InitialLossScalerState(config);
  std::string not_finite;
};

LossScale::LossScale(const LossScaleOptions& options)
    : state_(std::make_unique<State>(ToConfig(options))) {}
LossScale::~LossScale() = default;

at::Tensor LossScale::ScaleLoss(const at::Tensor& loss) const {
  return loss.to(at::promote_types(loss.scalar_type(), at::kFloat)) * scale();
}

bool LossScale::Unscale(const torch::OrderedDict<std::string, at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> names;
  std::vector<at::Tensor> gradients;
  std::set<const at::TensorImpl*> seen;
  for (const auto& parameter : parameters) {
    const at::Tensor& gradient = parameter.value().grad();
    // A tied weight has several names but one gradient, so the gradient is skipped after the first
    // name.
    if (!gradient.defined() || !seen.insert(gradient.unsafeGetTensorImpl()).second) continue;
    names.push_back(parameter.key());
    gradients.push_back(gradient);
  }
  if (gradients.empty()) return true;
  at::_foreach_mul_(gradients, 1 / scale());
  if (std::isfinite(GradientNorm(gradients))) return true;
  if (state_->not_finite.empty()) state_->not_finite = names[FirstNonFinite(gradients).value()];
  return false;
}

const std::string& LossScale::not_finite() const { return state_->not_finite; }

void LossScale::Update() {
  const bool overflow = !state_->not_finite.empty();
  const LossScaleDecision decision = UpdateLossScale(state_->config, state_->scaler, overflow);
  if (decision.give_up) {
    throw TrainError(ExitCode::kBadInput, "the gradient of " + state_->not_finite +
                                              " is not finite; " + decision.reason);
  }
  state_->scaler = decision.next;
  state_->not_finite.clear();
}

double LossScale::scale() const { return state_->scaler.scale; }

}  // namespace dslaunch
