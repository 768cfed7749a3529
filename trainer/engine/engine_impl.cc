#include "trainer/engine/engine_impl.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <limits>

#include "trainer/base/train_error.h"
#include "trainer/comm/explain.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/device/streams.h"
#include "trainer/optim/torch_optimizer.h"
#include "trainer/parallel/exchange/sign_mean.h"
#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/zero/parameter_gatherer.h"
#include "trainer/precision/gradients.h"

namespace dslaunch {
namespace {

const OptimizerConfig& OptimizerOf(const EngineConfig& config) {
  if (!config.optimizer) {
    RefuseInput(
        "the configuration has no \"optimizer\" and the program sets none; add for example "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}, or set "
        "InitializeOptions::optimizer or make_optimizer");
  }
  return *config.optimizer;
}

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

// Whoever waits for a step's gradients keeps a GPU idle, and cannot be recorded. Where the
// optimizer is offloaded the CPU waits for them anyway.
bool WaitingCosts(const EngineConfig& config, const MeshGroups& ranks) {
  if (config.cuda_graph) return true;
  const bool offloads =
      config.zero.stage > 0 && config.zero.offload_optimizer.device != OffloadDevice::kNone;
  return !ranks.world().device().is_cpu() && !offloads;
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

// What a group of the optimizer may name besides this engine's trained parameters.
std::vector<ParameterInfo> NotUpdated(std::vector<ParameterInfo> elsewhere,
                                      const std::vector<NamedTensor>& frozen) {
  for (const NamedTensor& item : frozen) elsewhere.push_back({item.name, item.tensor.dim()});
  return elsewhere;
}

// Null where the optimizer compresses nothing.
std::shared_ptr<CompressedMean> CompressedMeanOf(const EngineConfig& config,
                                                 const MeshGroups& ranks) {
  if (!config.optimizer || !config.optimizer->CompressesExchanges()) return nullptr;
  return std::make_shared<SignMean>(ranks.data());
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
      states_(MakeModelStates(config, module, *ranks_, passes, deferred)),
      parameters_(TrainableParameters(module)),
      frozen_(FrozenParameters(module)),
      optimizer_(make_optimizer
                     ? WrapTorchOptimizer(make_optimizer, parameters_, states_->parts(),
                                          !states_->sharded() || config.allow_untested_optimizer)
                     : MakeOptimizer(OptimizerOf(config), config.scheduler.schedule, parameters_,
                                     states_->parts(), SumOfShards(),
                                     NotUpdated(elsewhere_, frozen_),
                                     CompressedMeanOf(config, *ranks_), states_->StateZeros())),
      timed_(config.cuda_graph ? c10::Device(c10::kCPU) : ranks_->world().device()) {
  if (config.memory_breakdown || ActivationMeter::AnyInThisThread()) meter_.emplace();
  if (config.precision.loss_scaler) {
    scaler_ = InitialLossScalerState(*config.precision.loss_scaler);
  }
  TieParameters();
  if (config.optimizer && config.optimizer->CompressesExchanges()) {
    states_->ReduceWhen([this] { return optimizer_->TakesReducedGradients(); });
  }
  const bool is_adam =
      config.optimizer && (config.optimizer->type == OptimizerConfig::Type::kAdam ||
                           config.optimizer->type == OptimizerConfig::Type::kAdamW);
  if (is_adam && WaitingCosts(config, *ranks_)) optimizer_->MakeReplayable();
  states_->UpdateBy([this](std::vector<at::Tensor> gradients, int64_t step) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = gradients[i].to(states_->parts()[i].weight.scalar_type());
    }
    // The schedule counts steps, of which each rank makes an update.
    optimizer_->SetUpdates(optimizer_->updates(), step - 1);
    optimizer_->Step(gradients);
  });
}

// Gives all stages the values of the one whose copy counts.
void EngineCore::Impl::TieParameters() {
  if (ranks_->tied().empty()) return;
  const at::NoGradGuard no_grad;
  const std::vector<WeightPart>& parts = states_->parts();
  for (const TiedGroup& tied : ranks_->tied()) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parameters_[parts[i].parameter].name != tied.name) continue;
      tied_parts_.push_back({i, tied.group});
      at::Tensor weight = parts[i].weight;
      tied.group->Broadcast(weight, /*root=*/0);
    }
  }
  states_->CopyMasterToModel();
}

Pass EngineCore::Impl::CurrentPass() const {
  if (!Trains()) return Pass::kInference;
  return Boundary() && no_sync_scopes_ == 0 ? Pass::kSync : Pass::kAccumulate;
}

// Memory without parameters, which a pass gathers and releases.
void EngineCore::Impl::MeterBegin() {
  if (meter_) live_before_ = meter_->live_bytes() - states_->memory().parameters;
}

void EngineCore::Impl::MeterBackward() {
  if (!meter_ || !meter_->counted_all()) return;
  const int64_t live = meter_->live_bytes() - states_->memory().parameters;
  if (live - live_before_ < at_backward_.activations) return;
  at_backward_.activations = live - live_before_;
  at_backward_ = memory();
  at_backward_.buckets = states_->live_bucket_bytes();
  at_backward_.allocated = meter_->live_bytes();
}

at::Tensor EngineCore::Impl::ScaledLoss(const at::Tensor& loss, int64_t parts) {
  if (graph_retained_ && !losses_.empty()) {  // another loss of the same micro-batch
    losses_.back() = losses_.back() + loss.detach();
  } else {
    losses_.push_back(loss.detach());
  }
  return loss.to(at::promote_types(loss.scalar_type(), at::kFloat)) *
         (loss_scale() / static_cast<double>(parts));
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
  MemoryUse use = states_->memory();
  for (const Optimizer::State& state : optimizer_->States()) {
    use.optimizer += static_cast<int64_t>(state.tensor.nbytes());
  }
  for (const RankTensor& item : optimizer_->RankTensors()) {
    use.optimizer += static_cast<int64_t>(item.tensor.nbytes());
  }
  use.buffers = Bytes(Unique(module_.named_buffers()));
  use.activations = at_backward_.activations;
  return use;
}

TensorPart EngineCore::Impl::StatePart(const std::string& prefix, size_t part,
                                       const at::Tensor& tensor) const {
  const WeightPart& weight = states_->parts()[part];
  const NamedTensor& parameter = parameters_[weight.parameter];
  return {.name = prefix + parameter.name,
          .tensor = tensor,
          .shape = parameter.tensor.sizes().vec(),
          .start = weight.start,
          .replicated = !states_->sharded(),
          .rank0_authoritative = config_.TrainsApart(),
          .is_canonical = ranks_->Counts(parameter.name)};
}

std::vector<RankTensor> EngineCore::Impl::RankTensors() const {
  std::vector<RankTensor> tensors = states_->RankTensors();
  for (RankTensor& item : optimizer_->RankTensors()) tensors.push_back(std::move(item));
  if (!config_.TrainsApart()) return tensors;
  for (size_t i = 0; i < states_->parts().size(); ++i) {
    const TensorPart part = StatePart("model/", i, states_->parts()[i].weight);
    tensors.push_back({part.name, part.tensor, /*shared=*/false});
  }
  for (const Optimizer::State& item : optimizer_->States()) {
    const TensorPart part = StatePart(item.name + "/", item.part, item.tensor);
    tensors.push_back({part.name, part.tensor, /*shared=*/false});
  }
  return tensors;
}

// Null where every rank has whole parameters.
SumOverRanks EngineCore::Impl::SumOfShards() const {
  if (!states_->sharded()) return nullptr;
  if (ranks_->tied().empty()) {
    return [group = &ranks_->data()](at::Tensor& tensor) { group->AllReduce(tensor); };
  }
  // In the order of the ranks, so that the copies of tied weights, which lie at other places among
  // each stage's, get the same bits.
  return [group = &ranks_->data()](at::Tensor& tensor) {
    const at::Tensor all = group->AllGather(tensor);
    tensor.copy_(all[0]);
    for (int64_t i = 1; i < all.size(0); ++i) tensor.add_(all[i]);
  };
}

void EngineCore::Impl::StartStepOver() {
  in_pass_ = forward_done_ = backward_done_ = graph_retained_ = false;
  gives_up_ = true;
  losses_.clear();
  micro_steps_ -= micro_steps_ % config_.batch.accumulation_steps;
}

void EngineCore::Impl::GiveUp() {
  states_->GiveUp();
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

bool EngineCore::Impl::NeverWaits() const {
  return WaitingCosts(config_, *ranks_) && !ranks_->mesh().cuts_model() && !scaler_ &&
         (!config_.precision.skip_overflow || optimizer_->replayable());
}

void EngineCore::Impl::BeginUpdate() {
  skipped_ = false;
  skip_reason_.clear();
  states_->WithoutUpdates([this] { step_lr_ = optimizer_->lr(); });
  step_loss_scale_ = loss_scale();
}

void EngineCore::Impl::EndStep() {
  BeginUpdate();
  if (states_->stale_training() != nullptr) {
    TakeStepAtServers();
  } else if (NeverWaits()) {
    TakeStepAsync();
  } else {
    TakeStep();
  }
  states_->Clear();
  losses_.clear();
  ++global_steps_;
}

void EngineCore::Impl::TakeStep() {
  std::vector<at::Tensor> gradients = OwnGradients();
  AllReduceTied(gradients);
  const double own_norm = OwnNorm(gradients) / step_loss_scale_;
  grad_norm_ = NormOverRanks(own_norm);
  // All ranks have the same norm, inf and nan included, so all decide alike.
  const bool finite = std::isfinite(grad_norm_);
  if (!finite &&
      (scaler_ || config_.precision.skip_overflow || config_.precision.model == Dtype::kFloat32)) {
    NonFinite(FirstNonFiniteParameter(gradients));
    return;
  }
  double factor = 1 / step_loss_scale_;
  if (config_.gradient_clipping != 0) {
    // Gradients that stay this rank's own are clipped by their own norm, as in DeepSpeed.
    const double norm = states_->gradients_are_own() ? own_norm : grad_norm_;
    factor *= std::min(1.0, config_.gradient_clipping / (norm + 1e-6));
  }
  Update(gradients, factor == 1 ? nullptr : Scale([factor](const std::vector<at::Tensor>& some) {
           at::_foreach_mul_(some, factor);
         }));
  if (scaler_) {
    scaler_ = UpdateLossScale(*config_.precision.loss_scaler, *scaler_, /*overflow=*/false).next;
  }
}

// Gradients that are not finite make no update, or else make weights and the next losses so, which
// end the run where they are read.
void EngineCore::Impl::TakeStepAsync() {
  std::vector<at::Tensor> gradients = OwnGradients();
  norm_on_device_ =
      gradients.empty()
          ? at::zeros({}, at::TensorOptions(ranks_->world().device()).dtype(at::kDouble))
          : GradientNormOnDevice(gradients);
  if (states_->sharded()) {
    at::Tensor square = norm_on_device_.square();
    ranks_->world().AllReduce(square);
    norm_on_device_ = square.sqrt();
  }
  const auto clip = [this](const std::vector<at::Tensor>& some) {
    ClipOnDevice(some, norm_on_device_, config_.gradient_clipping);
  };
  Update(gradients, config_.gradient_clipping != 0 ? Scale(clip) : nullptr,
         config_.precision.skip_overflow ? norm_on_device_.isfinite().logical_not().to(at::kFloat)
                                         : at::Tensor());
}

// With this rank's own gradients, by whose norm they are clipped.
void EngineCore::Impl::TakeStepAtServers() {
  std::vector<at::Tensor> gradients = states_->Gradients();
  std::vector<at::Tensor> got;
  std::vector<size_t> indices;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() && !config_.zero.ignore_unused_parameters)
      RefuseWithoutGradient(parameters_[i]);
    if (!gradients[i].defined()) continue;
    got.push_back(gradients[i]);
    indices.push_back(i);
  }
  grad_norm_ = got.empty() ? 0 : GradientNorm(got);
  const bool finite = std::isfinite(grad_norm_);
  if (!finite && (config_.precision.skip_overflow || config_.precision.model == Dtype::kFloat32)) {
    NonFinite(parameters_[indices[FirstNonFinite(got).value_or(0)]].name);
    return states_->PushGradients({});
  }
  if (config_.gradient_clipping != 0 && !got.empty()) {
    const double factor = std::min(1.0, config_.gradient_clipping / (grad_norm_ + 1e-6));
    if (factor != 1) at::_foreach_mul_(got, factor);
  }
  states_->PushGradients(gradients);
  // Of a rank that is no server nobody else counts for the schedule.
  if (states_->parts().empty()) {
    states_->WithoutUpdates(
        [this] { optimizer_->SetUpdates(global_steps_ + 1, global_steps_ + 1); });
  }
}

// While a piece of offloaded weights is updated, the gradients of the next are on their way to the
// host, and the weights of the last on their way back (as in the ZeRO-Offload paper).
void EngineCore::Impl::Update(const std::vector<at::Tensor>& gradients, const Scale& scale,
                              const at::Tensor& skip) {
  if (!config_.cuda_graph) optimizer_->Prepare();  // else PrepareStep, outside of the graph
  optimizer_->BeginStep(skip);
  const bool leave_device = LeaveDevice(gradients);
  const std::vector<UpdatePiece> pieces = CutGradients(gradients, leave_device);
  std::deque<PieceGradients> fetched;
  size_t next = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    while (next < std::min(pieces.size(), i + (leave_device ? 2 : 1))) {
      fetched.push_back(Fetch(pieces[next++], gradients, scale, leave_device));
    }
    if (leave_device) fetched.front().copied->synchronize();
    optimizer_->StepParts(pieces[i].begin, fetched.front().gradients);
    fetched.pop_front();
    states_->Updated(pieces[i].begin, pieces[i].end);
  }
  optimizer_->EndStep();
  states_->CopyMasterToModel();
}

bool EngineCore::Impl::LeaveDevice(const std::vector<at::Tensor>& gradients) const {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].device() != states_->parts()[i].weight.device()) return true;
  }
  return false;
}

// In pieces only where gradients need memory of their own to become what the optimizer takes.
std::vector<UpdatePiece> EngineCore::Impl::CutGradients(const std::vector<at::Tensor>& gradients,
                                                        bool leave_device) const {
  constexpr int64_t kMaxLeavingElements = int64_t{16} << 20;  // copies run at full speed from here
  bool converts = leave_device;
  std::vector<int64_t> elements;
  for (size_t i = 0; i < gradients.size(); ++i) {
    elements.push_back(gradients[i].numel());
    converts |= gradients[i].scalar_type() != states_->parts()[i].weight.scalar_type();
  }
  if (!converts || !optimizer_->takes_pieces()) return {{0, gradients.size()}};
  return CutUpdate(elements, leave_device
                                 ? std::min(config_.zero.sub_group_size, kMaxLeavingElements)
                                 : config_.zero.sub_group_size);
}

EngineCore::Impl::PieceGradients EngineCore::Impl::Fetch(const UpdatePiece& piece,
                                                         const std::vector<at::Tensor>& gradients,
                                                         const Scale& scale,
                                                         bool leave_device) const {
  PieceGradients fetched;
  for (size_t i = piece.begin; i < piece.end; ++i) {
    const at::ScalarType weight = states_->parts()[i].weight.scalar_type();
    fetched.gradients.push_back(
        gradients[i].to(at::promote_types(gradients[i].scalar_type(), weight)));
  }
  if (scale && !fetched.gradients.empty()) scale(fetched.gradients);
  for (size_t i = piece.begin; i < piece.end; ++i) {
    at::Tensor& gradient = fetched.gradients[i - piece.begin];
    const at::Tensor& weight = states_->parts()[i].weight;
    gradient = gradient.to(weight.device(), weight.scalar_type(), /*non_blocking=*/true);
  }
  if (leave_device) {
    const c10::Device device = ranks_->world().device();
    fetched.copied.emplace(device.type());
    fetched.copied->record(CurrentStream(device));
  }
  return fetched;
}

// Of this rank's parts, in the dtype in which they accumulate.
std::vector<at::Tensor> EngineCore::Impl::OwnGradients() {
  std::vector<at::Tensor> gradients = states_->Gradients();
  const std::vector<WeightPart>& parts = states_->parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!gradients.at(i).defined()) RefuseWithoutGradient(parameters_[parts[i].parameter]);
  }
  return gradients;
}

// In fp32 at least, and rounded once, to what the weight takes.
void EngineCore::Impl::AllReduceTied(std::vector<at::Tensor>& gradients) const {
  for (const TiedPart& tied : tied_parts_) {
    at::Tensor& gradient = gradients[tied.part];
    at::Tensor sum = gradient.to(at::promote_types(gradient.scalar_type(), at::kFloat));
    tied.group->AllReduce(sum);
    const at::ScalarType weight = states_->parts()[tied.part].weight.scalar_type();
    gradient = sum.to(at::promote_types(gradient.scalar_type(), weight));
  }
}

double EngineCore::Impl::OwnNorm(const std::vector<at::Tensor>& gradients) const {
  std::vector<at::Tensor> counted;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (ranks_->Counts(parameters_[states_->parts()[i].parameter].name))
      counted.push_back(gradients[i]);
  }
  return counted.empty() ? 0 : GradientNorm(counted);
}

// Of gradients that are the ranks' own the root mean square, so that all ranks decide alike; of a
// rank that decides alone its own.
double EngineCore::Impl::NormOverRanks(double own) const {
  if (DecidesAlone()) return own;
  if (states_->gradients_are_own()) {
    std::vector<double> square = {own * own};
    ranks_->data().AllReduceSum(square);
    return std::sqrt(square[0] / ranks_->data().world_size());
  }
  if (!states_->sharded() && !ranks_->mesh().cuts_model()) return own;
  // Where they are not sharded, one replica speaks for all.
  const bool speaks = states_->sharded() || ranks_->data().rank() == 0;
  std::vector<double> square = {speaks ? own * own : 0};
  ranks_->world().AllReduceSum(square);
  return std::sqrt(square[0]);
}

// The first stage's first. Precondition: some rank has such a gradient.
std::string EngineCore::Impl::FirstNonFiniteParameter(
    const std::vector<at::Tensor>& gradients) const {
  int64_t place = std::numeric_limits<int64_t>::max();
  if (const std::optional<size_t> own = FirstNonFinite(gradients)) {
    place = (int64_t{ranks_->place().stage} << 32) +
            static_cast<int64_t>(states_->parts()[*own].parameter);
  }
  at::Tensor first = at::full({1}, place, at::kLong);
  if (states_->sharded() || ranks_->mesh().cuts_model() ||
      (states_->gradients_are_own() && !DecidesAlone())) {
    ranks_->world().AllReduce(first, ReduceOp::kMin);
  }
  const auto found = first.item<int64_t>();
  const auto index = static_cast<size_t>(found & 0xffffffff);
  if (ranks_->mesh().pipeline == 1) return parameters_[index].name;
  // Only that stage knows its name.
  for (const std::string& name :
       GatherTexts(ranks_->world(), place == found ? parameters_[index].name : "")) {
    if (!name.empty()) return name + " (stage " + std::to_string(found >> 32) + ")";
  }
  return "";
}

void EngineCore::Impl::NonFinite(const std::string& parameter) {
  const std::string what = "the gradient of " + parameter + " is not finite";
  if (scaler_) {
    const LossScaleDecision decision =
        UpdateLossScale(*config_.precision.loss_scaler, *scaler_, /*overflow=*/true);
    if (decision.give_up) FailWithLoss(what + "; " + decision.reason);
    scaler_ = decision.next;
    skip_reason_ = what + "; " + decision.reason;
  } else if (config_.precision.skip_overflow) {
    skip_reason_ = what + "; the update is skipped";
  } else {
    FailWithLoss(what + "; try a lower learning rate");
  }
  skipped_ = true;
  ++skipped_steps_;
}

// Says which rank's loss was the first not to be finite, if any was. Collective.
void EngineCore::Impl::FailWithLoss(const std::string& problem) {
  const ProcessGroup& world = ranks_->world();
  const auto own = static_cast<size_t>(2 * world.rank());
  std::vector<double> all(2 * static_cast<size_t>(world.world_size()));
  for (size_t part = 0; part < losses_.size() && all[own] == 0; ++part) {
    const auto loss = losses_[part].item<double>();
    if (std::isfinite(loss)) continue;
    all[own] = static_cast<double>(part + 1);
    all[own + 1] = loss;
  }
  if (!DecidesAlone()) world.AllReduceSum(all);
  std::string text = "step " + std::to_string(global_steps_ + 1) + ": ";
  for (size_t i = 0; i < all.size(); i += 2) {
    if (all[i] == 0) continue;
    char loss[96];
    std::snprintf(loss, sizeof loss, "the loss of rank %zu is %g in micro-batch %.0f, so ", i / 2,
                  all[i + 1], all[i]);
    text += loss;
    break;
  }
  RefuseInput(text + problem);
}

}  // namespace dslaunch
