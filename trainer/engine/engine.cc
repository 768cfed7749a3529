#include "dslaunch/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include "proto/contract/deadline.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/grad_sync.h"
#include "trainer/optim/optimizer.h"
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

class EngineCore::Impl {
 public:
  Impl(const EngineConfig& config, torch::nn::Module& module, const ProcessGroup& group)
      : config_(config),
        module_(module),
        parameters_(TrainableParameters(module)),
        model_state_(ParametersAndBuffers(module)),
        grad_sync_(MakeGradSync(group, parameters_, module.buffers(), {})),
        optimizer_(MakeOptimizer(*config.optimizer, config.scheduler.schedule, parameters_)) {}

  bool Boundary() const { return (micro_steps_ + 1) % config_.batch.accumulation_steps == 0; }

  void Backward(const at::Tensor& loss, bool scale_by_steps) {
    const int64_t parts = scale_by_steps ? config_.batch.accumulation_steps : 1;
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

  bool Step() {
    const bool boundary = Boundary();
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
    grad_sync_->Clear();
    ++global_steps_;
    return true;
  }

  void ClipGradients() {
    const std::vector<at::Tensor> gradients = grad_sync_->Gradients();
    std::vector<at::Tensor> norms;
    for (const at::Tensor& gradient : gradients) {
      norms.push_back(at::linalg_vector_norm(gradient, 2));
    }
    grad_norm_ = at::linalg_vector_norm(at::stack(norms), 2).item<double>();
    const double scale = config_.gradient_clipping / (grad_norm_ + 1e-6);
    if (config_.gradient_clipping == 0 || scale >= 1) return;
    for (const at::Tensor& gradient : gradients) gradient.mul_(scale);
  }

  EngineConfig config_;
  torch::nn::Module& module_;
  std::vector<NamedTensor> parameters_;  // those that are trained
  std::vector<NamedTensor> model_state_;
  std::unique_ptr<GradSync> grad_sync_;
  std::unique_ptr<Optimizer> optimizer_;
  int64_t micro_steps_ = 0;
  int64_t global_steps_ = 0;
  double grad_norm_ = 0;
  double step_lr_ = 0;
  std::string skip_reason_;
  Clock::time_point forward_start_;
  double compute_s_ = 0;
};

at::Tensor CrossEntropy(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output.flatten(0, -2).to(at::kFloat), target.flatten());
}

EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       const ProcessGroup& group)
    : impl_(std::make_unique<Impl>(config, module, group)) {}
EngineCore::EngineCore(const std::string& config, torch::nn::Module& module,
                       const ProcessGroup& group, const InitializeOptions&)
    : EngineCore(ParseEngineConfig(config, "config", group.world_size()), module, group) {}
EngineCore::~EngineCore() = default;
EngineCore::EngineCore(EngineCore&&) noexcept = default;

void EngineCore::BeforeForward() {
  if (!at::GradMode::is_enabled()) return;
  impl_->grad_sync_->BeforeForward(impl_->Boundary());
  if (impl_->micro_steps_ % impl_->config_.batch.accumulation_steps == 0) impl_->compute_s_ = 0;
  impl_->forward_start_ = Clock::now();
}

void EngineCore::AfterForward(const std::vector<at::Tensor>&) {
  if (at::GradMode::is_enabled()) impl_->grad_sync_->AfterForward(impl_->Boundary());
}

void EngineCore::Backward(const at::Tensor& loss, bool scale_by_steps) {
  impl_->Backward(loss, scale_by_steps);
}
bool EngineCore::Step() { return impl_->Step(); }
void EngineCore::SetTrain(bool on) { impl_->module_.train(on); }

bool EngineCore::IsGradientAccumulationBoundary() const { return impl_->Boundary(); }
int64_t EngineCore::train_batch_size() const { return impl_->config_.batch.train_batch_size; }
int64_t EngineCore::micro_batch_size() const { return impl_->config_.batch.micro_batch_size; }
int64_t EngineCore::accumulation_steps() const { return impl_->config_.batch.accumulation_steps; }
int64_t EngineCore::micro_steps() const { return impl_->micro_steps_; }
int64_t EngineCore::global_steps() const { return impl_->global_steps_; }
int64_t EngineCore::skipped_steps() const { return 0; }
bool EngineCore::skipped() const { return false; }
const std::string& EngineCore::skip_reason() const { return impl_->skip_reason_; }
double EngineCore::lr() const { return impl_->optimizer_->lr(); }
double EngineCore::step_lr() const { return impl_->step_lr_; }
double EngineCore::grad_norm() const { return impl_->grad_norm_; }
double EngineCore::loss_scale() const { return 1; }
double EngineCore::step_loss_scale() const { return 1; }
double EngineCore::compute_s() const { return impl_->compute_s_; }
MemoryUse EngineCore::memory() const { return {}; }

std::vector<NamedTensor> EngineCore::ModelState() const { return impl_->model_state_; }
std::vector<NamedTensor> EngineCore::OptimizerState() const {
  std::vector<NamedTensor> state;
  for (const Optimizer::State& item : impl_->optimizer_->States()) {
    state.push_back({"optimizer/" + item.name + "/" + item.parameter, item.tensor});
  }
  return state;
}
EngineProgress EngineCore::progress() const {
  return {.steps = impl_->global_steps_, .updates = impl_->optimizer_->updates()};
}
void EngineCore::WeightsChanged() {}
void EngineCore::Resume(const EngineProgress& progress) {
  impl_->global_steps_ = progress.steps;
  impl_->micro_steps_ = progress.steps * impl_->config_.batch.accumulation_steps;
  impl_->optimizer_->SetUpdates(progress.updates);
  WeightsChanged();
}

}  // namespace dslaunch
