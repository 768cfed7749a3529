#include "dslaunch/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "proto/contract/deadline.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/engine/model_states.h"
#include "trainer/engine/module_tensors.h"
#include "trainer/optim/optimizer.h"
#include "trainer/precision/gradients.h"
#include "trainer/precision/module_dtype.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

[[noreturn]] void Fail(const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, problem);
}

const OptimizerConfig& OptimizerOf(const EngineConfig& config) {
  if (!config.optimizer) {
    Fail(
        "the configuration has no \"optimizer\" and the program gives none; add for example "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}, or set "
        "InitializeOptions::optimizer");
  }
  return *config.optimizer;
}

// `config` is a path or JSON text.
EngineConfig ReadConfig(const std::string& config, const InitializeOptions& options, int ranks) {
  const size_t start = config.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && config[start] == '{') {
    return ParseEngineConfig(config, "the configuration", ranks, options.optimizer);
  }
  std::ifstream file(config);
  std::ostringstream text;
  if (!(text << file.rdbuf())) {
    Fail("cannot read the configuration " + config +
         "; give the path of a DeepSpeed configuration, or JSON text");
  }
  return ParseEngineConfig(text.str(), config, ranks, options.optimizer);
}

}  // namespace

class EngineCore::Impl {
 public:
  Impl(const EngineConfig& config, torch::nn::Module& module, const ProcessGroup& group,
       InitRecording* deferred)
      : config_(config),
        module_(module),
        group_(group),
        states_(MakeModelStates(config, module, group, deferred)),
        parameters_(TrainableParameters(module)),
        optimizer_(MakeOptimizer(OptimizerOf(config), config.scheduler.schedule, parameters_,
                                 states_->parts(), SumOfShards())) {
    if (config.memory_breakdown) meter_.emplace();
    if (config.precision.loss_scaler) {
      scaler_ = InitialLossScalerState(*config.precision.loss_scaler);
    }
  }

  bool Boundary() const { return (micro_steps_ + 1) % config_.batch.accumulation_steps == 0; }
  bool Trains() const { return at::GradMode::is_enabled() && module_.is_training(); }
  double loss_scale() const { return scaler_ ? scaler_->scale : 1; }

  Pass CurrentPass() const {
    if (!Trains()) return Pass::kInference;
    return Boundary() ? Pass::kSync : Pass::kAccumulate;
  }

  void BeforeForward() {
    if (meter_ && Trains()) live_before_ = meter_->live_bytes() - states_->memory().parameters;
    states_->BeforeForward(CurrentPass());
    if (!Trains()) return;
    if (micro_steps_ % config_.batch.accumulation_steps == 0) compute_s_ = 0;
    forward_start_ = Clock::now();
  }

  void AfterForward() {
    states_->AfterForward(CurrentPass());
    if (Trains()) forward_done_ = true;
  }

  void Backward(const at::Tensor& loss, bool scale_by_steps) {
    CheckBackward(loss);
    if (meter_) {  // without parameters that the pass has gathered
      const int64_t live = meter_->live_bytes() - states_->memory().parameters;
      activations_ = std::max(activations_, live - live_before_);
    }
    const int64_t parts = scale_by_steps ? config_.batch.accumulation_steps : 1;
    const at::Tensor root = loss.to(at::promote_types(loss.scalar_type(), at::kFloat)) *
                            (loss_scale() / static_cast<double>(parts));
    losses_.push_back(loss.detach());
    // Callbacks run when all gradients are there, in the order they were queued. Ours is queued at
    // the root, hence before the reducer's, which waits for the other ranks.
    root.register_hook([this](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] {
        compute_s_ += std::chrono::duration<double>(Clock::now() - forward_start_).count();
      });
    });
    root.backward();
    states_->AfterBackward();
    forward_done_ = false;
    backward_done_ = true;
  }

  bool Step() {
    if (!backward_done_) Fail("Step was called without Backward: call Backward(loss) before it");
    backward_done_ = false;
    const bool boundary = Boundary();
    ++micro_steps_;
    if (!boundary) return false;
    skipped_ = false;
    skip_reason_.clear();
    step_lr_ = optimizer_->lr();
    step_loss_scale_ = loss_scale();
    TakeStep();
    states_->Clear();
    losses_.clear();
    ++global_steps_;
    return true;
  }

  EngineProgress progress() const {
    EngineProgress progress{.steps = global_steps_,
                            .skipped = skipped_steps_,
                            .updates = optimizer_->updates(),
                            .scheduled_updates = optimizer_->scheduled_updates()};
    if (scaler_) {
      progress.loss_scale = scaler_->scale;
      progress.scaler_iteration = scaler_->iteration;
      progress.scaler_last_overflow = scaler_->last_overflow;
      progress.scaler_hysteresis = scaler_->hysteresis;
    }
    return progress;
  }

  void Resume(const EngineProgress& progress) {
    global_steps_ = progress.steps;
    micro_steps_ = progress.steps * config_.batch.accumulation_steps;
    skipped_steps_ = progress.skipped;
    optimizer_->SetUpdates(progress.updates, progress.scheduled_updates);
    states_->Publish();
    // A run without a scaler leaves none behind, and a static scale is the configuration's.
    if (!scaler_ || !config_.precision.loss_scaler->dynamic || progress.scaler_iteration == 0) {
      return;
    }
    scaler_ = {.scale = progress.loss_scale,
               .iteration = progress.scaler_iteration,
               .last_overflow = progress.scaler_last_overflow,
               .hysteresis = progress.scaler_hysteresis};
  }

  MemoryUse memory() const {
    MemoryUse use = states_->memory();
    for (const Optimizer::State& state : optimizer_->States()) {
      use.optimizer += static_cast<int64_t>(state.tensor.nbytes());
    }
    use.buffers = Bytes(Unique(module_.named_buffers()));
    use.activations = activations_;
    return use;
  }

  std::vector<TensorPart> ModelState() const {
    std::vector<TensorPart> state;
    for (size_t i = 0; i < states_->parts().size(); ++i) {
      state.push_back(StatePart("", i, states_->parts()[i].weight));
    }
    for (TensorPart& frozen : states_->Frozen()) state.push_back(std::move(frozen));
    for (const NamedTensor& buffer : Unique(module_.named_buffers())) {
      state.push_back({.name = buffer.name,
                       .tensor = buffer.tensor,
                       .shape = buffer.tensor.sizes().vec(),
                       .rank_0_counts = true});
    }
    return state;
  }

  std::vector<TensorPart> OptimizerState() const {
    std::vector<TensorPart> state;
    for (const Optimizer::State& item : optimizer_->States()) {
      state.push_back(StatePart("optimizer/" + item.name + "/", item.part, item.tensor));
    }
    return state;
  }

  EngineConfig config_;
  torch::nn::Module& module_;
  const ProcessGroup& group_;
  std::unique_ptr<ModelStates> states_;
  std::vector<NamedTensor> parameters_;  // those that are trained
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<LossScalerState> scaler_;
  bool forward_done_ = false;
  bool backward_done_ = false;
  int64_t micro_steps_ = 0;
  int64_t global_steps_ = 0;
  int64_t skipped_steps_ = 0;
  std::vector<at::Tensor> losses_;  // of the step so far
  double grad_norm_ = 0;
  double step_lr_ = 0;
  double step_loss_scale_ = 1;
  bool skipped_ = false;
  std::string skip_reason_;
  Clock::time_point forward_start_;
  double compute_s_ = 0;
  std::optional<ActivationMeter> meter_;
  int64_t live_before_ = 0;  // bytes, at the start of this micro-batch
  int64_t activations_ = 0;

 private:
  // Null where every rank has whole parameters.
  SumOverRanks SumOfShards() const {
    if (!states_->sharded()) return nullptr;
    return [this](at::Tensor& tensor) { group_.AllReduce(tensor); };
  }

  // What belongs to a part of a parameter.
  TensorPart StatePart(const std::string& prefix, size_t part, const at::Tensor& tensor) const {
    const WeightPart& weight = states_->parts()[part];
    const NamedTensor& parameter = parameters_[weight.parameter];
    return {.name = prefix + parameter.name,
            .tensor = tensor,
            .shape = parameter.tensor.sizes().vec(),
            .start = weight.start,
            .replicated = !states_->sharded()};
  }

  void CheckBackward(const at::Tensor& loss) const {
    if (!module_.is_training()) {
      Fail("Backward was called while the model is in evaluation mode: call SetTrain first");
    }
    if (backward_done_) {
      Fail(
          "Backward was called twice without Step: call Step after each Backward; it makes an "
          "update on the last micro-batch of a step only");
    }
    if (!forward_done_) {
      Fail(
          "Backward was called without a forward pass through the engine: call engine.Forward, "
          "with gradients enabled, rather than the model's own forward");
    }
    if (loss.numel() != 1) {
      Fail("Backward needs a scalar, but the loss has " + std::to_string(loss.numel()) +
           " elements: take its mean");
    }
    if (!loss.requires_grad()) {
      Fail(
          "the loss does not depend on any parameter that is trained: it was detached, or computed "
          "without gradients");
    }
  }

  void TakeStep() {
    std::vector<at::Tensor> gradients = OwnGradients();
    grad_norm_ = NormOverRanks(gradients) / step_loss_scale_;
    // All ranks have the same norm, inf and nan included, so all decide alike.
    const bool finite = std::isfinite(grad_norm_);
    if (!finite && (scaler_ || config_.precision.skip_overflow ||
                    config_.precision.model == Dtype::kFloat32)) {
      NotFinite(parameters_[FirstNotFiniteParameter(gradients)].name);
      return;
    }
    double factor = 1 / step_loss_scale_;
    if (config_.gradient_clipping != 0) {
      factor *= std::min(1.0, config_.gradient_clipping / (grad_norm_ + 1e-6));
    }
    if (factor != 1 && !gradients.empty()) at::_foreach_mul_(gradients, factor);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = gradients[i].to(states_->parts()[i].weight.options());
    }
    optimizer_->Step(gradients);
    states_->Publish();
    if (scaler_) {
      scaler_ = UpdateLossScale(*config_.precision.loss_scaler, *scaler_, /*overflow=*/false).next;
    }
  }

  // Of this rank's parts; in fp32 where the weights that they update are.
  std::vector<at::Tensor> OwnGradients() {
    std::vector<at::Tensor> gradients = states_->Gradients();
    const std::vector<WeightPart>& parts = states_->parts();
    for (size_t i = 0; i < parts.size(); ++i) {
      at::Tensor& gradient = gradients.at(i);
      if (!gradient.defined()) {
        Fail("the parameter " + parameters_[parts[i].parameter].name +
             " got no gradient: the model's output does not depend on it");
      }
      gradient =
          gradient.to(at::promote_types(gradient.scalar_type(), parts[i].weight.scalar_type()));
    }
    return gradients;
  }

  double NormOverRanks(const std::vector<at::Tensor>& gradients) const {
    const double own = gradients.empty() ? 0 : GradientNorm(gradients);
    if (!states_->sharded()) return own;
    std::vector<double> square = {own * own};
    group_.AllReduceSum(square);
    return std::sqrt(square[0]);
  }

  // Precondition: some rank has such a gradient.
  size_t FirstNotFiniteParameter(const std::vector<at::Tensor>& gradients) const {
    const std::optional<size_t> own = FirstNotFinite(gradients);
    at::Tensor first = at::full({1}, static_cast<int64_t>(parameters_.size()), at::kLong);
    if (own) first.fill_(static_cast<int64_t>(states_->parts()[*own].parameter));
    if (states_->sharded()) group_.AllReduce(first, ReduceOp::kMin);
    return static_cast<size_t>(first.item<int64_t>());
  }

  void NotFinite(const std::string& parameter) {
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
  [[noreturn]] void FailWithLoss(const std::string& problem) {
    const auto own = static_cast<size_t>(2 * group_.rank());
    std::vector<double> all(2 * static_cast<size_t>(group_.world_size()));
    for (size_t part = 0; part < losses_.size() && all[own] == 0; ++part) {
      const auto loss = losses_[part].item<double>();
      if (std::isfinite(loss)) continue;
      all[own] = static_cast<double>(part + 1);
      all[own + 1] = loss;
    }
    group_.AllReduceSum(all);
    std::string text = "step " + std::to_string(global_steps_ + 1) + ": ";
    for (size_t i = 0; i < all.size(); i += 2) {
      if (all[i] == 0) continue;
      char loss[96];
      std::snprintf(loss, sizeof loss, "the loss of rank %zu is %g in micro-batch %.0f, so ", i / 2,
                    all[i + 1], all[i]);
      text += loss;
      break;
    }
    Fail(text + problem);
  }
};

at::Tensor CrossEntropy(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output.flatten(0, -2).to(at::kFloat), target.flatten());
}

EngineCore::EngineCore(const EngineConfig& config, torch::nn::Module& module,
                       const ProcessGroup& group, InitRecording* deferred)
    : impl_(std::make_unique<Impl>(config, module, group, deferred)) {}
EngineCore::EngineCore(const std::string& config, torch::nn::Module& module,
                       const ProcessGroup& group, const InitializeOptions& options)
    : EngineCore(ReadConfig(config, options, group.world_size()), module, group, options.deferred) {
}
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

bool EngineCore::ForwardIsCollective() const { return impl_->config_.zero.stage == 3; }
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
double EngineCore::grad_norm() const { return impl_->grad_norm_; }
double EngineCore::loss_scale() const { return impl_->loss_scale(); }
double EngineCore::step_loss_scale() const { return impl_->step_loss_scale_; }
double EngineCore::compute_s() const { return impl_->compute_s_; }
MemoryUse EngineCore::memory() const { return impl_->memory(); }

std::vector<TensorPart> EngineCore::ModelState() const { return impl_->ModelState(); }
std::vector<TensorPart> EngineCore::OptimizerState() const { return impl_->OptimizerState(); }
EngineProgress EngineCore::progress() const { return impl_->progress(); }
const EngineConfig& EngineCore::config() const { return impl_->config_; }
const ProcessGroup& EngineCore::group() const { return impl_->group_; }
void EngineCore::WeightsChanged() { impl_->states_->Publish(); }
void EngineCore::Resume(const EngineProgress& progress) { impl_->Resume(progress); }

GatheredParameters::GatheredParameters(EngineCore& core, std::vector<at::Tensor> parameters,
                                       std::optional<int> modifier_rank)
    : core_(core), parameters_(std::move(parameters)), modifier_rank_(modifier_rank) {
  core_.impl_->states_->Gather(parameters_);
}
GatheredParameters::~GatheredParameters() noexcept(false) {
  // While an exception is passing the other ranks may never come.
  if (std::uncaught_exceptions() > 0) return;
  core_.impl_->states_->Release(parameters_, modifier_rank_);
}

}  // namespace dslaunch
