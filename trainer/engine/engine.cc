#include "dslaunch/engine.h"

#include <ATen/ATen.h>

#include <cmath>
#include <exception>

#include "trainer/base/by_rank.h"
#include "trainer/base/train_error.h"
#include "trainer/engine/engine_parts.h"
#include "trainer/engine/read_config.h"
#include "trainer/nn/cross_entropy.h"
#include "trainer/nn/module_dtype.h"

namespace dslaunch {
namespace {

// Reads the configuration of an engine without pipeline. Throws if the configuration has a
// pipeline, or if the program does not give the group for its tensor parallelism.
EngineConfig ReadWholeConfig(const std::string& text, const InitializeOptions& options,
                             const ProcessGroup& group) {
  const ProcessGroup* const tensor = options.tensor_group;
  EngineConfig config =
      ReadConfig(text, options, group, {.tensor = tensor == nullptr ? 0 : tensor->world_size()});
  if (config.pipeline.wanted()) {
    RefuseInput(
        "the configuration's pipeline needs a model with a list of layers: call "
        "InitializePipeline, or leave the section out");
  }
  if (config.tensor_parallel.size > 1 && tensor == nullptr) {
    RefuseInput("tensor_parallel.autotp_size is " + std::to_string(config.tensor_parallel.size) +
                ", but the program does not say which ranks divide its layers; set "
                "InitializeOptions::tensor_group and cuts, or leave the key out");
  }
  return config;
}

// Returns the mesh of the engine's ranks. Throws if options.tensor_group is not a group along the
// tensor axis of a mesh.
Mesh MeshOf(const ProcessGroup& group, const InitializeOptions& options) {
  const ProcessGroup* const tensor = options.tensor_group;
  if (tensor == nullptr || tensor->world_size() == 1) {
    if (options.cuts.empty()) return {.data = group.world_size()};
    RefuseInput(
        "InitializeOptions::cuts needs a tensor_group of the ranks that have the other parts");
  }
  const std::optional<Mesh> mesh =
      MakeMesh(group.world_size(), /*pipeline=*/1, tensor->world_size());
  std::vector<size_t> expected;
  if (mesh) {
    for (const int rank : mesh->RanksAlong(MeshAxis::kTensor, mesh->PlaceOf(group.rank()))) {
      expected.push_back(group.job_ranks()[static_cast<size_t>(rank)]);
    }
  }
  if (expected != tensor->job_ranks()) {
    RefuseInput("InitializeOptions::tensor_group has " + RankList(tensor->job_ranks()) +
                "; it must have consecutive ranks of the engine's group, of which there are " +
                std::to_string(group.world_size()) + ", beginning at a multiple of its size");
  }
  return *mesh;
}

std::shared_ptr<const MeshGroups> RanksOf(const ProcessGroup& group,
                                          const InitializeOptions& options) {
  const Mesh mesh = MeshOf(group, options);
  if (mesh.tensor == 1) return std::make_shared<MeshGroups>(group);
  auto ranks = std::make_shared<MeshGroups>(group, mesh, options.tensor_group);
  ranks->SetCut({.divided = options.cuts});
  return ranks;
}

}  // namespace

at::Tensor CrossEntropy(const at::Tensor& output, const at::Tensor& target) {
  return CrossEntropyOfLogits(output, target);
}

EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       const ProcessGroup& group, InitRecording* deferred)
    : EngineTensors(std::make_shared<EngineParts>(
          config, module, std::make_shared<MeshGroups>(group), Passes::kMicroBatches, deferred)) {}
EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       std::shared_ptr<const MeshGroups> ranks, Passes passes,
                       InitRecording* deferred)
    : EngineTensors(
          std::make_shared<EngineParts>(config, module, std::move(ranks), passes, deferred)) {}
EngineCore::EngineCore(const std::string& config, torch::nn::Module& module,
                       const ProcessGroup& group, const InitializeOptions& options)
    : EngineTensors(std::make_shared<EngineParts>(ReadWholeConfig(config, options, group), module,
                                                  RanksOf(group, options), Passes::kMicroBatches,
                                                  options.deferred, options.make_optimizer)) {}

// Implementation of EngineReadings.

const EngineConfig& EngineReadings::config() const { return parts_->config; }
const ProcessGroup& EngineReadings::group() const { return parts_->ranks->world(); }
const MeshGroups& EngineReadings::ranks() const { return *parts_->ranks; }

bool EngineReadings::ForwardIsCollective() const {
  return config().zero.stage == 3 || ranks().mesh().cuts_model();
}

bool EngineReadings::IsGradientAccumulationBoundary() const { return parts_->passes.AtBoundary(); }
int64_t EngineReadings::train_batch_size() const { return config().batch.train_batch_size; }
int64_t EngineReadings::micro_batch_size() const { return config().batch.micro_batch_size; }
int64_t EngineReadings::accumulation_steps() const { return config().batch.accumulation_steps; }
int64_t EngineReadings::micro_steps() const { return parts_->passes.micro_steps(); }
int64_t EngineReadings::global_steps() const { return parts_->step->steps(); }
int64_t EngineReadings::skipped_steps() const { return parts_->step->skipped_steps(); }
bool EngineReadings::skipped() const { return parts_->step->last().skipped; }
const std::string& EngineReadings::skip_reason() const { return parts_->step->last().skip_reason; }
double EngineReadings::lr() const { return parts_->step->optimizer().lr(); }
double EngineReadings::step_lr() const { return parts_->step->last().lr; }
std::vector<double> EngineReadings::GetLearningRates() const {
  return parts_->step->optimizer().lrs();
}
double EngineReadings::grad_norm() const { return grad_norm_on_device().item<double>(); }
at::Tensor EngineReadings::grad_norm_on_device() const { return parts_->step->last().grad_norm; }
double EngineReadings::loss_scale() const { return parts_->step->loss_scale(); }
double EngineReadings::step_loss_scale() const { return parts_->step->last().loss_scale; }
double EngineReadings::compute_s() const { return compute_time().Seconds(); }
TimeSpans EngineReadings::compute_time() const { return parts_->passes.compute(); }
MemoryUse EngineReadings::memory() const { return parts_->memory.Now(); }
const MemoryUse& EngineReadings::memory_at_backward() const { return parts_->memory.at_backward(); }

EngineProgress EngineReadings::progress() const {
  EngineProgress progress = parts_->step->progress();
  progress.learning_rates = parts_->set_lrs;
  return progress;
}

// Implementation of EngineCore.

AutocastScope EngineCore::Autocast() const {
  const std::optional<Dtype> dtype = config().precision.autocast;
  return AutocastScope(dtype ? std::make_optional(ToScalarType(*dtype)) : std::nullopt);
}

at::Tensor EngineCore::ToModelDtype(const at::Tensor& input) const {
  const Dtype dtype = config().precision.model;
  if (dtype == Dtype::kFloat32 || !input.defined() || !input.is_floating_point()) return input;
  return input.to(ToScalarType(dtype));
}

void EngineCore::BeforeForward() { parts_->passes.BeforeForward(); }
void EngineCore::AfterForward(const std::vector<at::Tensor>&) { parts_->passes.AfterForward(); }
void EngineCore::AbandonForward() { parts_->passes.AbandonForward(); }

bool EngineCore::recomputes() const { return parts_->recomputed && parts_->passes.Trains(); }
at::Tensor EngineCore::ForwardRecomputed(const at::Tensor& input) const {
  return parts_->recomputed->Forward(input);
}

void EngineCore::Backward(const at::Tensor& loss, const BackwardOptions& options) {
  parts_->passes.Backward(loss, options);
}
void EngineCore::ZeroGrad() { parts_->passes.ZeroGrad(); }
bool EngineCore::Step() { return parts_->passes.Step(); }
void EngineCore::SetTrain(bool on) { parts_->module.train(on); }

NoSyncScope EngineCore::NoSync() { return NoSyncScope(*this); }

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
  if (parts_->step->optimizer().has_schedule()) {
    RefuseInput("SetLearningRates: the scheduler " + config().scheduler.name +
                " sets the learning rate of each step; leave \"scheduler\" out of the "
                "configuration");
  }
  parts_->step->optimizer().SetLrs(lrs);
  parts_->set_lrs = lrs;
}

StaleTraining* EngineCore::stale_training() { return parts_->step->stale_training(); }
std::string EngineCore::ObserveGradNorm(double norm) { return parts_->step->ObserveGradNorm(norm); }

void EngineCore::PrepareStep() { parts_->step->optimizer().Prepare(); }

void EngineCore::StepReplayed(const at::Tensor& grad_norm) {
  parts_->step->CountReplay(grad_norm);
  parts_->passes.CountReplay();
}

void EngineCore::BeforeNextUpdate(std::function<void()> action) {
  parts_->step->BeforeNextUpdate(std::move(action));
}

void EngineCore::Resume(const EngineProgress& progress, const std::set<std::string>& without) {
  parts_->passes.Resume(progress.steps);
  parts_->step->Resume(progress, without);
  if (!progress.learning_rates.empty()) SetLearningRates(progress.learning_rates);
  parts_->step->states().CopyMasterToModel();
}

}  // namespace dslaunch
