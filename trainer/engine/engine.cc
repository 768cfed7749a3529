#include "dslaunch/engine.h"

#include <ATen/ATen.h>

#include <exception>

#include "trainer/base/train_error.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/engine_impl.h"
#include "trainer/engine/read_config.h"
#include "trainer/nn/module_dtype.h"

namespace dslaunch {
namespace {

// For a model that is whole on every rank.
EngineConfig ReadWholeConfig(const std::string& text, const InitializeOptions& options, int ranks) {
  EngineConfig config = ReadConfig(text, options, ranks);
  if (config.pipeline.wanted()) {
    RefuseInput(
        "the configuration's pipeline needs a model that can be cut into layers: call "
        "InitializePipeline, or leave the section out");
  }
  return config;
}

}  // namespace

at::Tensor CrossEntropy(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output.flatten(0, -2).to(at::kFloat), target.flatten());
}

EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       const ProcessGroup& group, InitRecording* deferred)
    : impl_(std::make_unique<Impl>(config, module, EngineRanks{.world = &group, .replicas = &group},
                                   Passes::kMicroBatches, deferred)) {}
EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       const EngineRanks& ranks, InitRecording* deferred)
    : impl_(std::make_unique<Impl>(config, module, ranks, Passes::kBatches, deferred)) {}
EngineCore::EngineCore(const std::string& config, torch::nn::Module& module,
                       const ProcessGroup& group, const InitializeOptions& options)
    : EngineCore(ReadWholeConfig(config, options, group.world_size()), module, group,
                 options.deferred) {}
EngineCore::~EngineCore() = default;
EngineCore::EngineCore(EngineCore&&) noexcept = default;

AutocastScope EngineCore::Autocast() const {
  const std::optional<Dtype> dtype = impl_->config_.precision.autocast;
  return AutocastScope(dtype ? std::make_optional(ToScalarType(*dtype)) : std::nullopt);
}
at::Tensor EngineCore::ToModelDtype(const at::Tensor& input) const {
  const Dtype dtype = impl_->config_.precision.model;
  if (dtype == Dtype::kFloat32 || !input.defined() || !input.is_floating_point()) return input;
  return input.to(ToScalarType(dtype));
}

void EngineCore::BeforeForward() { impl_->BeforeForward(); }
void EngineCore::AfterForward(const std::vector<at::Tensor>&) { impl_->AfterForward(); }
void EngineCore::Backward(const at::Tensor& loss, bool scale_by_steps) {
  impl_->Backward(loss, scale_by_steps);
}
bool EngineCore::Step() { return impl_->Step(); }
void EngineCore::SetTrain(bool on) { impl_->module_.train(on); }

bool EngineCore::ForwardIsCollective() const {
  return impl_->config_.zero.stage == 3 || impl_->config_.pipeline.stages > 1;
}
bool EngineCore::IsGradientAccumulationBoundary() const { return impl_->Boundary(); }
int64_t EngineCore::train_batch_size() const { return impl_->config_.batch.train_batch_size; }
int64_t EngineCore::micro_batch_size() const { return impl_->config_.batch.micro_batch_size; }
int64_t EngineCore::accumulation_steps() const { return impl_->config_.batch.accumulation_steps; }
int64_t EngineCore::micro_steps() const { return impl_->micro_steps_; }
int64_t EngineCore::global_steps() const { return impl_->global_steps_; }
int64_t EngineCore::skipped_steps() const { return impl_->skipped_steps_; }
bool EngineCore::skipped() const { return impl_->skipped_; }
const std::string& EngineCore::skip_reason() const { return impl_->skip_reason_; }
double EngineCore::lr() const { return impl_->optimizer_->lr(); }
double EngineCore::step_lr() const { return impl_->step_lr_; }
double EngineCore::grad_norm() const {
  return impl_->norm_on_device_.defined() ? impl_->norm_on_device_.item<double>()
                                          : impl_->grad_norm_;
}
at::Tensor EngineCore::grad_norm_on_device() const {
  return impl_->norm_on_device_.defined() ? impl_->norm_on_device_
                                          : at::scalar_tensor(impl_->grad_norm_, at::kDouble);
}
double EngineCore::loss_scale() const { return impl_->loss_scale(); }
double EngineCore::step_loss_scale() const { return impl_->step_loss_scale_; }
double EngineCore::compute_s() const { return impl_->compute_s_; }
MemoryUse EngineCore::memory() const { return impl_->memory(); }
const MemoryUse& EngineCore::memory_at_backward() const { return impl_->at_backward_; }

std::vector<TensorPart> EngineCore::ModelState() const { return impl_->ModelState(); }
std::vector<TensorPart> EngineCore::OptimizerState() const { return impl_->OptimizerState(); }
EngineProgress EngineCore::progress() const { return impl_->progress(); }
const EngineConfig& EngineCore::config() const { return impl_->config_; }
const ProcessGroup& EngineCore::group() const { return *impl_->ranks_.world; }
const EngineRanks& EngineCore::ranks() const { return impl_->ranks_; }
std::string EngineCore::ObserveGradNorm(double norm) { return impl_->ObserveGradNorm(norm); }
void EngineCore::PrepareStep() { impl_->optimizer_->Prepare(); }
void EngineCore::StepReplayed(const at::Tensor& grad_norm) { impl_->StepReplayed(grad_norm); }
void EngineCore::WeightsChanged() { impl_->states_->CopyMasterToModel(); }
void EngineCore::Resume(const EngineProgress& progress) { impl_->Resume(progress); }

GatheredParameters::GatheredParameters(EngineCore& core, std::vector<at::Tensor> parameters,
                                       std::optional<int> modifier_rank)
    : core_(core), parameters_(std::move(parameters)), modifier_rank_(modifier_rank) {
  core_.impl_->states_->Unshard(parameters_);
}
GatheredParameters::~GatheredParameters() noexcept(false) {
  // While an exception is passing the other ranks may never come.
  if (std::uncaught_exceptions() > 0) return;
  core_.impl_->states_->Reshard(parameters_, modifier_rank_);
}

}  // namespace dslaunch
