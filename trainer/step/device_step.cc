#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "trainer/precision/gradients.h"
#include "trainer/step/step_kinds.h"
#include "trainer/step/update_weights.h"

namespace dslaunch {
namespace {

class DeviceStep : public OptimizerStep {
 public:
  explicit DeviceStep(StepParts parts) : OptimizerStep(std::move(parts)) {}

  std::string ObserveGradNorm(double norm) override {
    if (!config_.precision.skip_overflow || std::isfinite(norm)) return "";
    optimizer_->Skipped();
    ++skipped_steps_;
    return "a gradient is not finite; the update is skipped";
  }

 protected:
  void Update(const std::vector<at::Tensor>&) override {
    const std::vector<at::Tensor> gradients = PartGradients();
    at::Tensor& norm = last_.grad_norm;
    norm = gradients.empty()
               ? at::zeros({}, at::TensorOptions(ranks_.world().device()).dtype(at::kDouble))
               : GradientNormOnDevice(gradients);
    if (states_->sharded()) {
      at::Tensor square = norm.square();
      ranks_.world().AllReduce(square);
      norm = square.sqrt();
    }
    const auto clip = [this](const std::vector<at::Tensor>& some) {
      ClipOnDevice(some, last_.grad_norm, config_.gradient_clipping);
    };
    UpdateWeights(config_, *states_, *optimizer_, gradients,
                  config_.gradient_clipping != 0 ? GradientScaling(clip) : nullptr,
                  config_.precision.skip_overflow ? norm.isfinite().logical_not().to(at::kFloat)
                                                  : at::Tensor());
  }
};

}  // namespace

std::unique_ptr<OptimizerStep> MakeDeviceStep(StepParts parts) {
  return std::make_unique<DeviceStep>(std::move(parts));
}

}  // namespace dslaunch
