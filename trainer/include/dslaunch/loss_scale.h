// fp16 training in a loop of one's own, with torch::optim: the loss scale that the engine uses.
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
  double loss_scale = 0;             // 0: dynamic; else it stays as it is
  int64_t initial_scale_power = 16;  // the rest: dynamic only
  int64_t loss_scale_window = 1000;  // updates without overflow after which the scale doubles
  int64_t hysteresis = 2;            // overflows in a row of which only the last halves the scale
  bool consecutive_hysteresis = false;  // any good update restores the hysteresis, not only growth
  double min_loss_scale = 1;
};

// One thread. Its state does not leave this process: gradients of several ranks have to be reduced
// before Unscale, so that all ranks see the same.
class LossScale {
 public:
  // Throws TrainError for options out of range.
  explicit LossScale(const LossScaleOptions& options = {});
  ~LossScale();

  // loss * scale, in at least fp32.
  at::Tensor ScaleLoss(const at::Tensor& loss) const;

  // Divides the gradients of `parameters` by the scale, in place and in their dtype; parameters
  // without one are passed over. False where some gradient is not finite: then the optimizer must
  // not make its step. May be called for several sets of parameters before Update. Waits for the
  // device.
  bool Unscale(const torch::OrderedDict<std::string, at::Tensor>& parameters);
  // The first parameter since the last Update whose gradient was not finite; empty: none.
  const std::string& not_finite() const;

  // Once per step, skipped or not: raises or lowers the scale. Throws TrainError, naming that
  // parameter, where the scale is too high but cannot be lowered any more.
  void Update();

  double scale() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dslaunch
