// The engine's loss scale for custom fp16 training loops with torch::optim.
//
//   dslaunch::LossScale scale;
//   scale.ScaleLoss(loss).backward();
//   if (scale.Unscale(model->named_parameters())) optimizer.step();
//   scale.Update();
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <memory>
#include <string>

namespace dslaunch {

// The keys of DeepSpeed's section "fp16".
struct LossScaleOptions {
  double loss_scale = 0;                // 0: dynamic; otherwise static
  int64_t initial_scale_power = 16;     // this and the following: dynamic only
  int64_t loss_scale_window = 1000;     // updates without overflow after which the scale doubles
  int64_t hysteresis = 2;               // number of overflows after which the scale is halved
  bool consecutive_hysteresis = false;  // every update without overflow resets it
  double min_loss_scale = 1;
};

// Not thread-safe. The state is local to this process: reduce gradients over the ranks before
// Unscale, so that all ranks make the same decision.
class LossScale {
 public:
  // Throws TrainError for options out of range.
  explicit LossScale(const LossScaleOptions& options = {});
  ~LossScale();

  // Returns loss * scale, in fp32 or a wider type.
  at::Tensor ScaleLoss(const at::Tensor& loss) const;

  // Divides the gradients of `parameters` by the scale, in place and in their dtype; skips
  // parameters without a gradient. Returns false if a gradient is not finite: the optimizer must
  // then skip its step. May be called for several sets of parameters before Update. Blocks until
  // the device is done.
  bool Unscale(const torch::OrderedDict<std::string, at::Tensor>& parameters);
  // Returns the name of the first parameter since the last Update whose gradient was not finite;
  // empty if there is none.
  const std::string& not_finite() const;

  // Call once per step, skipped or not. Raises or lowers the scale. Throws TrainError, naming the
  // parameter, if gradients overflow at the minimum scale.
  void Update();

  double scale() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dslaunch
