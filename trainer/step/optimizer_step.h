// Performs the optimizer step of an engine, which updates the weights from the gradients of the
// engine's passes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/named_tensor.h"
#include "trainer/config/engine_config.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/exchange/gradient_exchange.h"
#include "trainer/parallel/model_states.h"
#include "trainer/parallel/stale_training.h"
#include "trainer/precision/loss_scaler.h"

namespace dslaunch {

// The arguments of MakeOptimizerStep. `config`, `module` and `ranks` must outlive the step.
struct StepInputs {
  const EngineConfig& config;
  torch::nn::Module& module;
  const MeshGroups& ranks;
  Passes passes = Passes::kMicroBatches;
  InitRecording* deferred = nullptr;
  // Creates the program's optimizer; null to use the configured optimizer.
  const OptimizerFactory& make_optimizer;
  // Parameters of other pipeline stages. Groups of the optimizer may name them too.
  const std::vector<ParameterInfo>& elsewhere;
};

// The configuration, ranks, tensors and optimizer on which a step operates.
struct StepParts {
  const EngineConfig& config;
  const MeshGroups& ranks;
  std::vector<NamedTensor> parameters;  // trained parameters after the cast
  std::unique_ptr<ModelStates> states;
  std::unique_ptr<Optimizer> optimizer;
  // Exchange of weights or gradients; null if all ranks, or servers, reduce every gradient in every
  // step.
  std::unique_ptr<GradientExchange> exchange;
};

// The result of the last step.
struct LastStep {
  double lr = 0;
  double loss_scale = 1;
  // L2 norm of the gradients before clipping, an fp64 scalar on the device that computed it.
  at::Tensor grad_norm;
  bool skipped = false;
  std::string skip_reason;  // reason why the step was skipped; empty if it was not skipped
};

// Performs the optimizer steps of an engine. Not thread-safe. All ranks must call the same methods
// in the same order. The methods are collective unless ranks proceed independently (servers with
// staleness, weights_differ()).
class OptimizerStep {
 public:
  explicit OptimizerStep(StepParts parts);
  virtual ~OptimizerStep() = default;
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;

  // Clips the gradients, updates the weights and clears the gradients. Skips the update if
  // gradients are not finite and the configuration allows skipping. `losses` are this rank's losses
  // of the step's micro-batches, for messages. Throws TrainError kBadInput if a parameter got no
  // gradient, or if gradients are not finite and the step cannot be skipped.
  void Make(const std::vector<at::Tensor>& losses);
  // Calls `action` once, at the beginning of the next Make. Used by code that reads weights or
  // optimizer state concurrently with the passes.
  void BeforeNextUpdate(std::function<void()> action) { before_update_ = std::move(action); }
  // Counts a step that replayed a recorded Make ("cuda_graph").
  void CountReplay(const at::Tensor& grad_norm);
  // Handles the gradient norm of a step whose Make did not wait for the device. Call it once for
  // each step, in order. Returns why that step was skipped; "" if the step was not skipped, or if
  // Make has already reported the reason.
  virtual std::string ObserveGradNorm(double /*norm*/) { return ""; }

  // Resets RankTensors() to the values of a new run that starts with rank 0's weights.
  void Restart();
  // Continues after `progress.steps` steps. `without` has the names of RankTensors() that were not
  // restored from a checkpoint; the exchange or the optimizer that owns such a tensor is restarted.
  void Resume(const EngineProgress& progress, const std::set<std::string>& without);
  EngineProgress progress() const;  // returns all fields except learning_rates
  // Returns the number of steps so far, including skipped steps.
  int64_t steps() const { return steps_; }
  // Returns the number of steps whose update was skipped.
  int64_t skipped_steps() const { return skipped_steps_; }

  const LastStep& last() const { return last_; }
  // Returns the loss scale of the next step.
  double loss_scale() const { return scaler_ ? scaler_->scale : 1; }

  // Returns whether the ranks' weights may differ after a step.
  bool weights_differ() const { return exchange_ && exchange_->weights_differ(); }
  // Returns the tensors, other than weights and Optimizer::States(), that the exchange and the
  // optimizer keep between steps.
  std::vector<RankTensor> RankTensors() const;
  // Returns the control of stale training if servers update as gradients arrive
  // (parallel.staleness), else null.
  virtual StaleTraining* stale_training() { return nullptr; }

  ModelStates& states() const { return *states_; }
  Optimizer& optimizer() const { return *optimizer_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

 protected:
  // Sets last_.grad_norm. Then updates the weights, or calls Skip.
  virtual void Update(const std::vector<at::Tensor>& losses) = 0;
  virtual double CurrentLr() { return optimizer_->lr(); }
  virtual void Resumed() {}

  // Returns the gradients of states_->parts(). Throws if a gradient is missing.
  std::vector<at::Tensor> PartGradients();
  // Ends an Update whose gradients are not finite; `parameter` is the first parameter with such a
  // gradient. Throws if the step cannot be skipped. If it throws and `all_ranks` is set, the call
  // is collective.
  void Skip(const std::string& parameter, const std::vector<at::Tensor>& losses, bool all_ranks);
  // Returns whether no update is made if gradients are not finite, because the step is skipped or
  // fails.
  bool RefusesNonFinite() const {
    return scaler_ || config_.precision.skip_overflow || config_.precision.model == Dtype::kFloat32;
  }

  const EngineConfig& config_;
  const MeshGroups& ranks_;
  const std::vector<NamedTensor> parameters_;
  const std::unique_ptr<ModelStates> states_;
  const std::unique_ptr<Optimizer> optimizer_;
  const std::unique_ptr<GradientExchange> exchange_;
  std::optional<LossScalerState> scaler_;
  LastStep last_;
  int64_t skipped_steps_ = 0;

 private:
  void Begin();
  [[noreturn]] void Fail(const std::string& problem, const std::vector<at::Tensor>& losses,
                         bool all_ranks) const;

  int64_t steps_ = 0;
  std::function<void()> before_update_;  // action of BeforeNextUpdate; null if there is none
};

// Prepares the module and creates the step that the configuration requires. Moves the module's
// parameters and buffers to the device of the ranks and casts them as configured. Gives recorded
// tensors (`deferred`) their values. Copies rank 0's values of the other tensors to all ranks of
// ranks.data(), and to all ranks of ranks.tensor() if they are whole there. The step is a
// - ServerStep with parallel.staleness;
// - DeviceStep if waiting for gradients would keep a device idle and nothing needs their values on
//   the host;
// - SynchronousStep otherwise.
// The parameter indices of the states' parts refer to the trained parameters in the module's order.
// Throws TrainError on all ranks of ranks.data() if their models differ, if nothing is trained
// (only with Passes::kMicroBatches), or if the optimizer does not fit. Collective.
std::unique_ptr<OptimizerStep> MakeOptimizerStep(const StepInputs& inputs);

}  // namespace dslaunch
