// The engine: a user's model trained by all ranks under a DeepSpeed configuration.
//
//   auto engine = dslaunch::Initialize(config, std::make_shared<Mlp>(784, 128, 10), group);
//   for (...) {
//     at::Tensor loss = at::cross_entropy_loss(engine.Forward(images), labels);
//     engine.Backward(loss);
//     engine.Step();
//   }
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

#include "proto/contract/deadline.h"
#include "trainer/comm/process_group.h"
#include "trainer/config/recipe.h"
#include "trainer/grad_sync.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {

// What the engine does whatever the model's type. One thread.
class EngineCore {
 public:
  // Parameters are those of `module` that require a gradient. All ranks leave with rank 0's values.
  EngineCore(const EngineConfig& config, torch::nn::Module& module, const ProcessGroup& group);

  // Around the model's forward pass. Without gradients (evaluation) they do nothing.
  void BeforeForward();
  void AfterForward();

  // Gradients of loss / gradient_accumulation_steps, averaged over the ranks on the last
  // micro-batch of a step.
  void Backward(const at::Tensor& loss);

  // Everything that training changes, by name: weights and buffers by their module path, then
  // "optimizer/<kind>/<parameter>". The tensors themselves, not copies.
  std::vector<NamedTensor> ModelState() const { return model_state_; }
  std::vector<NamedTensor> OptimizerState() const;

  // Call it after both were overwritten, on every rank, with the state of a run that had made
  // `steps` optimizer steps and `updates` updates, by which the learning rate goes.
  void Resume(int64_t steps, int64_t updates);

  // Ends a micro-batch; on the last one of a step clips, updates and clears the gradients, and
  // returns true.
  bool Step();

  bool IsGradientAccumulationBoundary() const {
    return (micro_steps_ + 1) % config_.batch.accumulation_steps == 0;
  }
  int64_t global_steps() const { return global_steps_; }
  int64_t optimizer_updates() const { return optimizer_->updates(); }
  // Of the next step, as DeepSpeed's get_lr() has it after engine.step().
  double lr() const { return optimizer_->lr(); }
  // Of the last step.
  double step_lr() const { return step_lr_; }
  // Of the last step: L2 norm of the averaged gradient before clipping.
  double grad_norm() const { return grad_norm_; }
  // Of the step so far, or of the last one: seconds from the start of each forward pass until the
  // last gradient of this rank was there. What follows in backward waits for other ranks.
  double compute_s() const { return compute_s_; }

 private:
  void ClipGradients();

  EngineConfig config_;
  std::vector<NamedTensor> parameters_;  // those that are trained
  std::vector<NamedTensor> model_state_;
  std::unique_ptr<GradSync> grad_sync_;
  std::unique_ptr<Optimizer> optimizer_;
  int64_t micro_steps_ = 0;   // engine.Step() calls
  int64_t global_steps_ = 0;  // optimizer updates
  double grad_norm_ = 0;
  double step_lr_ = 0;
  Clock::time_point forward_start_;
  double compute_s_ = 0;
};

// M is any torch::nn::Module; Forward takes and returns what its forward does.
template <class M>
class Engine {
 public:
  Engine(const EngineConfig& config, std::shared_ptr<M> model, const ProcessGroup& group)
      : model_(std::move(model)), core_(config, *model_, group) {}

  template <class... Args>
  auto Forward(Args&&... args) {
    core_.BeforeForward();
    auto output = model_->forward(std::forward<Args>(args)...);
    core_.AfterForward();
    return output;
  }
  void Backward(const at::Tensor& loss) { core_.Backward(loss); }
  bool Step() { return core_.Step(); }

  void SetTrain() { model_->train(); }
  void SetEval() { model_->eval(); }
  const EngineCore& core() const { return core_; }
  EngineCore& core() { return core_; }

 private:
  std::shared_ptr<M> model_;
  EngineCore core_;
};

template <class M>
Engine<M> Initialize(const EngineConfig& config, std::shared_ptr<M> model,
                     const ProcessGroup& group) {
  return Engine<M>(config, std::move(model), group);
}

}  // namespace dslaunch
