#include "trainer/engine.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trainer/train_error.h"

namespace dslaunch {
namespace {

std::vector<NamedTensor> TrainableParameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad()) parameters.push_back({item.key(), item.value()});
  }
  return parameters;
}

}  // namespace

EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       const ProcessGroup& group)
    : config_(config),
      parameters_(TrainableParameters(module)),
      grad_sync_(MakeReducerSync(group, parameters_, module.buffers())),
      optimizer_(MakeOptimizer(config.optimizer, config.scheduler.schedule, parameters_)) {}

void EngineCore::BeforeForward() {
  if (at::GradMode::is_enabled()) grad_sync_->BeforeForward(IsGradientAccumulationBoundary());
}

void EngineCore::AfterForward() {
  if (at::GradMode::is_enabled()) grad_sync_->AfterForward(IsGradientAccumulationBoundary());
}

void EngineCore::Backward(const at::Tensor& loss) {
  const int64_t parts = config_.batch.accumulation_steps;
  (parts == 1 ? loss : loss / parts).backward();
}

bool EngineCore::Step() {
  const bool boundary = IsGradientAccumulationBoundary();
  ++micro_steps_;
  if (!boundary) return false;
  for (const NamedTensor& parameter : parameters_) {
    if (parameter.tensor.grad().defined()) continue;
    throw TrainError(ExitCode::kBadInput,
                     "the parameter " + parameter.name +
                         " got no gradient: the model's output does not depend on it");
  }
  ClipGradients();
  step_lr_ = optimizer_->lr();
  optimizer_->Step();
  for (NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  ++global_steps_;
  return true;
}

void EngineCore::ClipGradients() {
  std::vector<at::Tensor> norms;
  for (const NamedTensor& parameter : parameters_) {
    norms.push_back(at::linalg_vector_norm(parameter.tensor.grad(), 2));
  }
  grad_norm_ = at::linalg_vector_norm(at::stack(norms), 2).item<double>();
  const double scale = config_.gradient_clipping / (grad_norm_ + 1e-6);
  if (config_.gradient_clipping == 0 || scale >= 1) return;
  for (const NamedTensor& parameter : parameters_) parameter.tensor.grad().mul_(scale);
}

}  // namespace dslaunch
