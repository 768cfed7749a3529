// Provides the engine's loss scaling for custom fp16 training loops with torch::optim.
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

// Options of LossScale, named like the keys of DeepSpeed's section "fp16".
struct LossScaleOptions {
  double loss_scale = 0;  // static loss scale; 0 for a dynamic scale with the options below
  int64_t initial_scale_power = 16;  // log2 of the first dynamic scale
  // Number of updates without overflow after which the scale doubles.
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;               // number of overflows after which the scale is halved
  bool consecutive_hysteresis = false;  // true if each update without overflow resets hysteresis
  double min_loss_scale = 1;
};

// Scales losses and unscales gradients. Not thread-safe. The state is local to this process, so
// reduce gradients over the ranks before Unscale; otherwise ranks may decide differently.
class LossScale {
 public:
  // Throws TrainError if an option is out of range.
  explicit LossScale(const LossScaleOptions& options = {});
  ~LossScale();

  // Returns loss * scale, in fp32 or a wider type.
  at::Tensor ScaleLoss(const at::Tensor& loss) const;

  // Divides the gradients of `parameters` by the scale, in place and in their dtype; skips
  // parameters without a gradient. Returns false if a gradient is not finite; the caller must then
  // skip the optimizer's step. May be called for several sets of parameters before Update. Blocks
  // until the device has completed the division.
  bool Unscale(const torch::OrderedDict<std::string, at::Tensor>& parameters);
  // Returns the name of the first parameter since the last Update whose gradient was not finite;
  // empty if all gradients were finite.
  const std::string& not_finite() const;

  // Raises or lowers the scale. Call it once per step, even if the step was skipped. Throws
  // TrainError, naming the parameter, if gradients overflow at the minimum scale.
  void Update();

  double scale() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dslaunch
