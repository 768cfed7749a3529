#include "dslaunch/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <cmath>
#include <exception>

#include "trainer/base/train_error.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/engine_impl.h"
#include "trainer/engine/read_config.h"
#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/module_tensors.h"

namespace dslaunch {
namespace {

// For a model that is whole on every rank.
EngineConfig ReadWholeConfig(const std::string& text, const InitializeOptions& options, int ranks) {
  EngineConfig config = ReadConfig(text, options, ranks);
  if (config.pipeline.wanted()) {
    RefuseInput(
        "the configuration's pipeline needs a model with a list of layers: call "
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

void EngineCore::BeforeForward() {
  if (impl_->passes_ == Passes::kBatches) {
    RefuseInput(
        "this engine has one stage of a pipeline: train with PipelineEngine::TrainBatch, which "
        "runs all of them");
  }
  impl_->states_->Begin(impl_->CurrentPass());
  if (!impl_->Trains()) return;
  impl_->MeterBegin();
  if (impl_->micro_steps_ % impl_->config_.batch.accumulation_steps == 0) impl_->compute_s_ = 0;
  impl_->forward_start_ = Clock::now();
}

void EngineCore::AfterForward(const std::vector<at::Tensor>&) {
  if (impl_->Trains()) {
    impl_->forward_done_ = true;
  } else {
    impl_->states_->End();
  }
}

void EngineCore::Backward(const at::Tensor& loss, bool scale_by_steps) {
  impl_->CheckBackward(loss);
  impl_->MeterBackward();
  const at::Tensor root =
      impl_->ScaledLoss(loss, scale_by_steps ? impl_->config_.batch.accumulation_steps : 1);
  // Callbacks run when all gradients are there, in the order they were queued. Ours is queued at
  // the root, hence before the reducer's, which waits for the other ranks.
  root.register_hook([impl = impl_.get()](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([impl] {
      impl->compute_s_ +=
          std::chrono::duration<double>(Clock::now() - impl->forward_start_).count();
    });
  });
  impl_->states_->BeforeBackward(/*last=*/impl_->Boundary());
  root.backward();
  impl_->states_->AfterBackward();
  impl_->states_->End();
  impl_->forward_done_ = false;
  impl_->backward_done_ = true;
}

bool EngineCore::Step() {
  if (!impl_->backward_done_)
    RefuseInput("Step was called without Backward: call Backward(loss) before it");
  impl_->backward_done_ = false;
  const bool boundary = impl_->Boundary();
  ++impl_->micro_steps_;
  if (boundary) impl_->EndStep();
  return boundary;
}

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

std::vector<TensorPart> EngineCore::ModelState() const {
  std::vector<TensorPart> state;
  for (size_t i = 0; i < impl_->states_->parts().size(); ++i) {
    state.push_back(impl_->StatePart("", i, impl_->states_->parts()[i].weight));
  }
  for (TensorPart& frozen : impl_->states_->Frozen()) {
    frozen.is_canonical = impl_->Counts(frozen.name);
    state.push_back(std::move(frozen));
  }
  for (const NamedTensor& buffer : Unique(impl_->module_.named_buffers())) {
    state.push_back({.name = buffer.name,
                     .tensor = buffer.tensor,
                     .shape = buffer.tensor.sizes().vec(),
                     .rank0_authoritative = true,
                     .is_canonical = impl_->Counts(buffer.name)});
  }
  return state;
}

std::vector<TensorPart> EngineCore::OptimizerState() const {
  std::vector<TensorPart> state;
  for (const Optimizer::State& item : impl_->optimizer_->States()) {
    state.push_back(impl_->StatePart("optimizer/" + item.name + "/", item.part, item.tensor));
  }
  return state;
}

EngineProgress EngineCore::progress() const {
  EngineProgress progress{.steps = impl_->global_steps_,
                          .skipped = impl_->skipped_steps_,
                          .updates = impl_->optimizer_->updates(),
                          .scheduled_updates = impl_->optimizer_->scheduled_updates()};
  if (impl_->scaler_) {
    progress.loss_scale = impl_->scaler_->scale;
    progress.scaler_iteration = impl_->scaler_->iteration;
    progress.scaler_last_overflow = impl_->scaler_->last_overflow;
    progress.scaler_hysteresis = impl_->scaler_->hysteresis;
  }
  return progress;
}

const EngineConfig& EngineCore::config() const { return impl_->config_; }
const ProcessGroup& EngineCore::group() const { return *impl_->ranks_.world; }
const EngineRanks& EngineCore::ranks() const { return impl_->ranks_; }

std::string EngineCore::ObserveGradNorm(double norm) {
  if (!impl_->NeverWaits() || !impl_->config_.precision.skip_overflow || std::isfinite(norm))
    return "";
  impl_->optimizer_->Skipped();
  ++impl_->skipped_steps_;
  return "a gradient is not finite; the update is skipped";
}

void EngineCore::PrepareStep() { impl_->optimizer_->Prepare(); }

void EngineCore::StepReplayed(const at::Tensor& grad_norm) {
  impl_->BeginUpdate();
  impl_->optimizer_->Replayed();
  impl_->norm_on_device_ = grad_norm;
  impl_->micro_steps_ += impl_->config_.batch.accumulation_steps;
  ++impl_->global_steps_;
}

void EngineCore::WeightsChanged() { impl_->states_->CopyMasterToModel(); }

void EngineCore::Resume(const EngineProgress& progress) {
  impl_->global_steps_ = progress.steps;
  impl_->micro_steps_ = progress.steps * impl_->config_.batch.accumulation_steps;
  impl_->skipped_steps_ = progress.skipped;
  impl_->optimizer_->SetUpdates(progress.updates, progress.scheduled_updates);
  impl_->states_->CopyMasterToModel();
  // A run without a scaler leaves none behind, and a static scale is the configuration's.
  if (!impl_->scaler_ || !impl_->config_.precision.loss_scaler->dynamic ||
      progress.scaler_iteration == 0) {
    return;
  }
  impl_->scaler_ = {.scale = progress.loss_scale,
                    .iteration = progress.scaler_iteration,
                    .last_overflow = progress.scaler_last_overflow,
                    .hysteresis = progress.scaler_hysteresis};
}

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
