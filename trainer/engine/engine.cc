#include "dslaunch/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "trainer/base/train_error.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/engine_impl.h"
#include "trainer/engine/read_config.h"
#include "trainer/nn/cross_entropy.h"
#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/whole_tensor.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

// For a model that is whole on every rank.
EngineConfig ReadWholeConfig(const std::string& text, const InitializeOptions& options,
                             const ProcessGroup& group) {
  EngineConfig config = ReadConfig(text, options, group);
  if (config.pipeline.wanted()) {
    RefuseInput(
        "the configuration's pipeline needs a model with a list of layers: call "
        "InitializePipeline, or leave the section out");
  }
  return config;
}

}  // namespace

at::Tensor CrossEntropy(const at::Tensor& output, const at::Tensor& target) {
  return CrossEntropyOfLogits(output, target);
}

EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       const ProcessGroup& group, InitRecording* deferred)
    : impl_(std::make_shared<Impl>(config, module, std::make_shared<MeshGroups>(group),
                                   Passes::kMicroBatches, deferred)) {}
EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       std::shared_ptr<const MeshGroups> ranks, InitRecording* deferred)
    : impl_(std::make_shared<Impl>(config, module, std::move(ranks), Passes::kBatches, deferred)) {}
EngineCore::EngineCore(const std::string& config, torch::nn::Module& module,
                       const ProcessGroup& group, const InitializeOptions& options)
    : impl_(std::make_shared<Impl>(ReadWholeConfig(config, options, group), module,
                                   std::make_shared<MeshGroups>(group), Passes::kMicroBatches,
                                   options.deferred, options.make_optimizer)) {}
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

bool EngineCore::recomputes() const { return impl_->recomputes(); }
at::Tensor EngineCore::ForwardRecomputed(const at::Tensor& input) const {
  return impl_->recomputed_->Forward(input);
}

void EngineCore::BeforeForward() {
  if (impl_->passes_ == Passes::kBatches) {
    RefuseInput(
        "this engine has one stage of a pipeline: train with PipelineEngine::TrainBatch, which "
        "runs all of them");
  }
  const bool trains = impl_->Trains();
  if (!trains && impl_->in_pass_) {  // as a part of it
    ++impl_->nested_passes_;
    return;
  }
  if (trains) impl_->CheckFrozen();
  if (trains && impl_->gives_up_) impl_->GiveUp();
  impl_->states().Begin(impl_->CurrentPass());
  if (!trains) return;
  impl_->in_pass_ = true;
  impl_->nested_passes_ = 0;
  impl_->unsynced_ = impl_->no_sync_scopes_ > 0;
  impl_->graph_retained_ = false;
  impl_->MeterBegin();
  if (impl_->micro_steps_ % impl_->config_.batch.accumulation_steps == 0) impl_->compute_ = {};
  impl_->compute_.Begin(impl_->timed_);
  impl_->watch_.emplace(impl_->guard_.Watch(/*forward=*/true));
}

void EngineCore::AfterForward(const std::vector<at::Tensor>&) {
  if (impl_->nested_passes_ > 0) {
    --impl_->nested_passes_;
  } else if (impl_->in_pass_) {
    impl_->watch_.reset();
    impl_->forward_done_ = true;
  } else {
    impl_->states().End();
  }
}

// What is open at stage 3 is ended by the next pass: that may wait for other ranks, and no
// exception should.
void EngineCore::AbandonForward() {
  if (impl_->nested_passes_ > 0) {
    --impl_->nested_passes_;
  } else {
    impl_->watch_.reset();
    impl_->in_pass_ = impl_->forward_done_ = false;
  }
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const c10::Error& error) {
      Impl::RefuseIfNotGathered(error);
    } catch (...) {
      // It says itself what is wrong.
    }
  }
}

void EngineCore::Backward(const at::Tensor& loss, const BackwardOptions& options) {
  impl_->CheckBackward(loss);
  impl_->MeterBackward();
  const at::Tensor root =
      impl_->ScaledLoss(loss, options.scale_by_steps ? impl_->config_.batch.accumulation_steps : 1);
  // Callbacks run when all gradients are there, in the order they were queued. Ours is queued at
  // the root, hence before the reducer's, which waits for the other ranks.
  root.register_hook([impl = impl_.get()](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([impl] { impl->compute_.End(); });
  });
  impl_->graph_retained_ = options.retain_graph;
  impl_->OrStartStepOver([&] {
    impl_->states().BeforeBackward(
        /*last=*/impl_->Boundary() && !impl_->unsynced_ && !options.retain_graph);
    {
      const ExchangeWatch watch = impl_->guard_.Watch(/*forward=*/false);
      root.backward(/*gradient=*/{}, options.retain_graph);
    }
    impl_->states().AfterBackward();
    if (!options.retain_graph) impl_->states().End();
  });
  if (options.retain_graph) {  // another backward pass follows
    impl_->compute_.Begin(impl_->timed_);
    return;
  }
  impl_->in_pass_ = impl_->forward_done_ = false;
  impl_->backward_done_ = !impl_->unsynced_;
}

void EngineCore::ZeroGrad() {
  if (!impl_->gives_up_) impl_->states().DropGradients();
  impl_->backward_done_ = false;
  impl_->losses_.clear();
}

bool EngineCore::Step() {
  if (impl_->no_sync_scopes_ > 0) {
    RefuseInput(
        "Step was called within NoSync, where gradients are not averaged over the ranks: leave its "
        "scope and run Forward and Backward once more before Step");
  }
  if (impl_->graph_retained_) {
    RefuseInput(
        "Step was called after a Backward with retain_graph, which announces another Backward of "
        "the same forward pass: call the last one without retain_graph");
  }
  if (!impl_->backward_done_) {
    RefuseInput(
        "Step was called without Backward: call Backward(loss) before it; one within NoSync does "
        "not count");
  }
  impl_->backward_done_ = false;
  const bool boundary = impl_->Boundary();
  if (boundary) impl_->OrStartStepOver([&] { impl_->EndStep(); });
  ++impl_->micro_steps_;
  return boundary;
}

NoSyncScope EngineCore::NoSync() { return NoSyncScope(*this); }

NoSyncScope::NoSyncScope(EngineCore& core) : engine_(core.impl_) {
  if (core.impl_->passes_ == Passes::kBatches) {
    RefuseInput("NoSync has no meaning in a pipeline: TrainBatch exchanges gradients once a batch");
  }
  ++core.impl_->no_sync_scopes_;
}

NoSyncScope::~NoSyncScope() {
  if (const auto engine = engine_.lock()) --engine->no_sync_scopes_;
}

std::vector<double> EngineCore::GetLearningRates() const { return impl_->optimizer().lrs(); }

void EngineCore::SetLearningRate(double lr) {
  SetLearningRates(std::vector<double>(GetLearningRates().size(), lr));
}

void EngineCore::SetLearningRates(const std::vector<double>& lrs) {
  const size_t groups = GetLearningRates().size();
  if (lrs.size() != groups) {
    RefuseInput("SetLearningRates: " + std::to_string(lrs.size()) + " values for " +
                std::to_string(groups) +
                " groups; give one for each of optimizer.param_groups and one for all other "
                "parameters, as GetLearningRates returns them");
  }
  for (const double lr : lrs) {
    if (std::isfinite(lr) && lr >= 0) continue;
    RefuseInput("SetLearningRates: " + std::to_string(lr) +
                " is not a learning rate; it must be finite and not negative");
  }
  if (impl_->optimizer().has_schedule()) {
    RefuseInput("SetLearningRates: the scheduler " + impl_->config_.scheduler.name +
                " sets the learning rate of each step; leave \"scheduler\" out of the "
                "configuration");
  }
  impl_->optimizer().SetLrs(lrs);
  impl_->set_lrs_ = lrs;
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
int64_t EngineCore::global_steps() const { return impl_->step_->steps(); }
int64_t EngineCore::skipped_steps() const { return impl_->step_->skipped_steps(); }
bool EngineCore::skipped() const { return impl_->step_->last().skipped; }
const std::string& EngineCore::skip_reason() const { return impl_->step_->last().skip_reason; }
double EngineCore::lr() const { return impl_->optimizer().lr(); }
double EngineCore::step_lr() const { return impl_->step_->last().lr; }
double EngineCore::grad_norm() const { return impl_->step_->last().grad_norm.item<double>(); }

at::Tensor EngineCore::grad_norm_on_device() const { return impl_->step_->last().grad_norm; }

double EngineCore::loss_scale() const { return impl_->step_->loss_scale(); }
double EngineCore::step_loss_scale() const { return impl_->step_->last().loss_scale; }
double EngineCore::compute_s() const { return impl_->compute_.Seconds(); }
TimeSpans EngineCore::compute_time() const { return impl_->compute_; }
MemoryUse EngineCore::memory() const { return impl_->memory(); }
const MemoryUse& EngineCore::memory_at_backward() const { return impl_->at_backward_; }

std::vector<TensorPart> EngineCore::ModelState() const {
  std::vector<TensorPart> state;
  for (size_t i = 0; i < impl_->states().parts().size(); ++i) {
    state.push_back(impl_->StatePart("", i, impl_->states().parts()[i].weight));
  }
  for (TensorPart& frozen : impl_->states().Frozen()) {
    PlaceInWhole(*impl_->ranks_, frozen.name, frozen);
    state.push_back(std::move(frozen));
  }
  for (const NamedTensor& buffer : Unique(impl_->module_.named_buffers())) {
    TensorPart& part = state.emplace_back(TensorPart::Whole(buffer.name, buffer.tensor));
    part.rank0_authoritative = true;
    PlaceInWhole(*impl_->ranks_, buffer.name, part);
  }
  return state;
}

std::vector<TensorPart> EngineCore::OptimizerState() const {
  std::vector<TensorPart> state;
  for (const Optimizer::State& item : impl_->optimizer().States()) {
    state.push_back(impl_->StatePart("optimizer/" + item.name + "/", item.part, item.tensor));
  }
  return state;
}

std::vector<TensorPart> EngineCore::RankState() const {
  const ProcessGroup& replicas = impl_->ranks_->data();
  std::vector<TensorPart> state;
  for (RankTensor& item : impl_->RankTensors()) {
    TensorPart& part =
        state.emplace_back(TensorPart::Whole("rank_state/" + item.name, item.tensor));
    part.replicated = item.shared;
    if (item.shared) continue;
    part.shape.insert(part.shape.begin(), replicas.world_size());
    part.shard = CutShard(part.shape, 0, replicas.rank(), replicas.rank() + 1);
  }
  return state;
}

EngineProgress EngineCore::progress() const {
  EngineProgress progress = impl_->step_->progress();
  progress.learning_rates = impl_->set_lrs_;
  return progress;
}

const EngineConfig& EngineCore::config() const { return impl_->config_; }
const ProcessGroup& EngineCore::group() const { return impl_->ranks_->world(); }
const MeshGroups& EngineCore::ranks() const { return *impl_->ranks_; }
StaleTraining* EngineCore::stale_training() { return impl_->step_->stale_training(); }

std::string EngineCore::ObserveGradNorm(double norm) { return impl_->step_->ObserveGradNorm(norm); }

void EngineCore::PrepareStep() { impl_->optimizer().Prepare(); }

void EngineCore::StepReplayed(const at::Tensor& grad_norm) {
  impl_->step_->CountReplay(grad_norm);
  impl_->compute_ = {};  // not known
  impl_->micro_steps_ += impl_->config_.batch.accumulation_steps;
}

void EngineCore::WeightsChanged() {
  impl_->step_->Restart();
  impl_->states().CopyMasterToModel();
}

void EngineCore::Resume(const EngineProgress& progress, const std::set<std::string>& without) {
  impl_->StartStepOver();
  impl_->GiveUp();
  impl_->step_->Resume(progress, without);
  impl_->micro_steps_ = progress.steps * impl_->config_.batch.accumulation_steps;
  if (!progress.learning_rates.empty()) SetLearningRates(progress.learning_rates);
  impl_->states().CopyMasterToModel();
}

GatheredParameters::GatheredParameters(EngineCore& core, std::vector<at::Tensor> parameters,
                                       std::optional<int> modifier_rank)
    : engine_(core.impl_), parameters_(std::move(parameters)), modifier_rank_(modifier_rank) {
  core.impl_->states().Unshard(parameters_);
}

GatheredParameters::~GatheredParameters() noexcept(false) {
  // While an exception is passing the other ranks may never come.
  if (std::uncaught_exceptions() > 0) return;
  if (const auto engine = engine_.lock()) {
    engine->states().Reshard(parameters_, modifier_rank_);
  } else if (modifier_rank_) {
    throw TrainError(ExitCode::kUsage,
                     "GatheredParameters was destroyed after its engine, so what "
                     "rank " +
                         std::to_string(*modifier_rank_) +
                         " wrote is lost; destroy it before the engine");
  }
}

}  // namespace dslaunch
