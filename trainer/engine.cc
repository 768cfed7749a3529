#include "trainer/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

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

std::vector<NamedTensor> ParametersAndBuffers(const torch::nn::Module& module) {
  std::vector<NamedTensor> state;
  for (const auto& item : module.named_parameters()) state.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) state.push_back({item.key(), item.value()});
  return state;
}

}  // namespace

EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       const ProcessGroup& group)
    : config_(config),
      parameters_(TrainableParameters(module)),
      model_state_(ParametersAndBuffers(module)),
      grad_sync_(MakeReducerSync(group, parameters_, module.buffers())),
      optimizer_(MakeOptimizer(config.optimizer, config.scheduler.schedule, parameters_)) {}

void EngineCore::BeforeForward() {
  if (!at::GradMode::is_enabled()) return;
  grad_sync_->BeforeForward(IsGradientAccumulationBoundary());
  if (micro_steps_ % config_.batch.accumulation_steps == 0) compute_s_ = 0;
  forward_start_ = Clock::now();
}

void EngineCore::AfterForward() {
  if (at::GradMode::is_enabled()) grad_sync_->AfterForward(IsGradientAccumulationBoundary());
}

void EngineCore::Backward(const at::Tensor& loss) {
  const int64_t parts = config_.batch.accumulation_steps;
  const at::Tensor root = parts == 1 ? loss : loss / parts;
  // Callbacks run when all gradients are there, in the order they were queued. Ours is queued at
  // the root, hence before the reducer's, which waits for the other ranks.
  root.register_hook([this](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      compute_s_ += std::chrono::duration<double>(Clock::now() - forward_start_).count();
    });
  });
  root.backward();
}

std::vector<NamedTensor> EngineCore::OptimizerState() const {
  std::vector<NamedTensor> state;
  for (const Optimizer::State& item : optimizer_->States()) {
    state.push_back({"optimizer/" + item.name + "/" + item.parameter, item.tensor});
  }
  return state;
}

void EngineCore::Resume(int64_t steps, int64_t updates) {
  global_steps_ = steps;
  micro_steps_ = steps * config_.batch.accumulation_steps;
  optimizer_->SetUpdates(updates);
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
