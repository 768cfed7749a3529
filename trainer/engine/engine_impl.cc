#include "trainer/engine/engine_impl.h"

#include <ATen/ATen.h>

#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/whole_tensor.h"
#include "trainer/parallel/zero/parameter_gatherer.h"

namespace dslaunch {
namespace {

// Throws where the configuration has what cannot go with the program's own optimizer.
const EngineConfig& CheckedConfig(const EngineConfig& config,
                                  const OptimizerFactory& make_optimizer) {
  if (!make_optimizer) return config;
  const std::string problem =
      config.optimizer ? "the configuration, or InitializeOptions::optimizer, gives one too; leave "
                         "one of them out"
      : !config.scheduler.name.empty()
          ? "the configuration's scheduler " + config.scheduler.name +
                " cannot set its learning rate; leave \"scheduler\" out, and step a "
                "torch::optim::LRScheduler of the optimizer"
      : config.cuda_graph ? "\"cuda_graph\" can record the configuration's Adam and AdamW only; "
                            "leave one of them out"
      : config.zero.offload_optimizer.device == OffloadDevice::kNvme
          ? "only the state of the configuration's optimizers can lie in files; leave "
            "zero_optimization.offload_optimizer out, or give it the device cpu"
          : "";
  if (problem.empty()) return config;
  RefuseInput("the program gives an optimizer (InitializeOptions::make_optimizer), but " + problem);
}

// `module`, which no other engine holds.
torch::nn::Module& Unowned(torch::nn::Module& module) {
  using Owner = ParameterGatherer::Owner;
  const std::vector<NamedTensor> parameters = Unique(module.named_parameters());
  CheckHooksAreFree(parameters);
  for (const auto& [name, tensor] : parameters) {
    const Owner owner = ParameterGatherer::OwnerOf(tensor);
    if (owner == Owner::kOther) continue;
    RefuseInput("the parameter " + name + " is sharded by another engine (ZeRO stage 3)" +
                (owner == Owner::kGatherer
                     ? "; destroy that engine first, or give each engine a model of its own"
                     : ", which was destroyed, so its values are lost; construct the model anew, "
                       "and load a checkpoint"));
  }
  return module;
}

std::vector<NamedTensor> FrozenParameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters = Unique(module.named_parameters());
  std::erase_if(parameters, [](const NamedTensor& item) { return item.tensor.requires_grad(); });
  return parameters;
}

std::optional<LayerRunner> Recomputed(torch::nn::Module& module, int64_t parts) {
  return parts > 0 ? std::make_optional<LayerRunner>(module, parts) : std::nullopt;
}

std::vector<ParameterInfo> CheckStages(const EngineConfig& config, const torch::nn::Module& module,
                                       const MeshGroups& ranks, Passes passes) {
  if (passes == Passes::kMicroBatches) return {};
  CheckSameConfig(ranks.world(), config);
  return ParametersElsewhere(ranks, module);
}

}  // namespace

EngineCore::Impl::Impl(const EngineConfig& config, torch::nn::Module& module,
                       std::shared_ptr<const MeshGroups> ranks, Passes passes,
                       InitRecording* deferred, const OptimizerFactory& make_optimizer)
    : config_(CheckedConfig(config, make_optimizer)),
      module_(Unowned(module)),
      ranks_(std::move(ranks)),
      passes_(passes),
      elsewhere_(CheckStages(config, module, *ranks_, passes)),
      recomputed_(Recomputed(module, config.number_checkpoints)),
      guard_(ranks_->data(), module, deferred == nullptr),
      step_(MakeOptimizerStep({.config = config_,
                               .module = module_,
                               .ranks = *ranks_,
                               .passes = passes,
                               .deferred = deferred,
                               .make_optimizer = make_optimizer,
                               .elsewhere = elsewhere_})),
      frozen_(FrozenParameters(module)),
      timed_(config.cuda_graph ? c10::Device(c10::kCPU) : ranks_->world().device()) {
  if (config.memory_breakdown || ActivationMeter::AnyInThisThread()) meter_.emplace();
}

Pass EngineCore::Impl::CurrentPass() const {
  if (!Trains()) return Pass::kInference;
  return Boundary() && no_sync_scopes_ == 0 ? Pass::kSync : Pass::kAccumulate;
}

// Memory without parameters, which a pass gathers and releases.
void EngineCore::Impl::MeterBegin() {
  if (meter_) live_before_ = meter_->live_bytes() - states().memory().parameters;
}

void EngineCore::Impl::MeterBackward() {
  if (!meter_ || !meter_->counted_all()) return;
  const int64_t live = meter_->live_bytes() - states().memory().parameters;
  if (live - live_before_ < at_backward_.activations) return;
  at_backward_.activations = live - live_before_;
  at_backward_ = memory();
  at_backward_.buckets = states().live_bucket_bytes();
  at_backward_.allocated = meter_->live_bytes();
}

at::Tensor EngineCore::Impl::ScaledLoss(const at::Tensor& loss, int64_t parts) {
  if (graph_retained_ && !losses_.empty()) {  // another loss of the same micro-batch
    losses_.back() = losses_.back() + loss.detach();
  } else {
    losses_.push_back(loss.detach());
  }
  return loss.to(at::promote_types(loss.scalar_type(), at::kFloat)) *
         (step_->loss_scale() / static_cast<double>(parts));
}

void EngineCore::Impl::CheckFrozen() const {
  for (const auto& [name, tensor] : frozen_) {
    if (!tensor.requires_grad()) continue;
    RefuseInput("the parameter " + name +
                " requires a gradient, but was frozen when the engine was made, so it would not "
                "be trained; unfreeze it before Initialize, or make a new engine");
  }
}

void EngineCore::Impl::CheckBackward(const at::Tensor& loss) const {
  if (!module_.is_training()) {
    RefuseInput("Backward was called while the model is in evaluation mode: call SetTrain first");
  }
  if (backward_done_) {
    RefuseInput(
        "Backward was called twice without Step: call Step after each Backward; it makes an "
        "update on the last micro-batch of a step only. For several losses of one forward pass "
        "set BackwardOptions::retain_graph in all calls but the last; for several forward passes "
        "of one micro-batch run all but the last within NoSync()");
  }
  if (!forward_done_) {
    RefuseInput(
        "Backward was called without a forward pass through the engine: call engine.Forward, "
        "with gradients enabled, rather than the model's own forward");
  }
  CheckLoss(loss);
}

void EngineCore::Impl::CheckLoss(const at::Tensor& loss) const {
  if (loss.numel() != 1) {
    RefuseInput("Backward needs a scalar, but the loss has " + std::to_string(loss.numel()) +
                " elements: use its mean");
  }
  if (!loss.requires_grad()) {
    RefuseInput(
        "the loss does not depend on any parameter that is trained: it was detached, or computed "
        "without gradients");
  }
}

MemoryUse EngineCore::Impl::memory() const {
  MemoryUse use = states().memory();
  for (const Optimizer::State& state : optimizer().States()) {
    use.optimizer += static_cast<int64_t>(state.tensor.nbytes());
  }
  for (const RankTensor& item : step_->RankTensors()) {
    use.optimizer += static_cast<int64_t>(item.tensor.nbytes());
  }
  use.buffers = Bytes(Unique(module_.named_buffers()));
  use.activations = at_backward_.activations;
  return use;
}

TensorPart EngineCore::Impl::StatePart(const std::string& prefix, size_t part,
                                       const at::Tensor& tensor) const {
  const WeightPart& weight = states().parts()[part];
  const NamedTensor& parameter = parameters()[weight.parameter];
  TensorPart state = {.name = prefix + parameter.name,
                      .tensor = tensor,
                      .shape = parameter.tensor.sizes().vec(),
                      .shard = weight.shard,
                      .replicated = !states().sharded(),
                      .rank0_authoritative = step_->weights_differ()};
  PlaceInWhole(*ranks_, parameter.name, state);
  return state;
}

std::vector<RankTensor> EngineCore::Impl::RankTensors() const {
  std::vector<RankTensor> tensors = step_->RankTensors();
  if (!step_->weights_differ()) return tensors;
  for (size_t i = 0; i < states().parts().size(); ++i) {
    const TensorPart part = StatePart("model/", i, states().parts()[i].weight);
    tensors.push_back({part.name, part.tensor, /*shared=*/false});
  }
  for (const Optimizer::State& item : optimizer().States()) {
    const TensorPart part = StatePart(item.name + "/", item.part, item.tensor);
    tensors.push_back({part.name, part.tensor, /*shared=*/false});
  }
  return tensors;
}

void EngineCore::Impl::StartStepOver() {
  in_pass_ = forward_done_ = backward_done_ = graph_retained_ = false;
  gives_up_ = true;
  losses_.clear();
  micro_steps_ -= micro_steps_ % config_.batch.accumulation_steps;
}

void EngineCore::Impl::GiveUp() {
  states().GiveUp();
  gives_up_ = false;
}

void EngineCore::Impl::RefuseIfNotGathered(const c10::Error& error) {
  const std::string what = error.what_without_backtrace();
  if (IsNotGathered(what)) RefuseInput(what);
}

void EngineCore::Impl::OrStartStepOver(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    StartStepOver();
    RefuseIfNotGathered(error);
    throw;
  } catch (...) {
    StartStepOver();
    throw;
  }
}

void EngineCore::Impl::EndStep() {
  step_->Make(losses_);
  losses_.clear();
}

}  // namespace dslaunch
