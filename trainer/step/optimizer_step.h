// The optimizer step of an engine: from the gradients that its passes have left to updated weights.
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

// The arguments of MakeOptimizerStep. `config`, `module` and `ranks` must
// outlive the step.
struct StepInputs {
  const EngineConfig& config;
  torch::nn::Module& module;
  const MeshGroups& ranks;
  Passes passes = Passes::kMicroBatches;
  InitRecording* deferred = nullptr;
  const OptimizerFactory& make_optimizer;  // null: the configuration's optimizer
  // Parameters of other pipeline stages, which groups of the optimizer may name too.
  const std::vector<ParameterInfo>& elsewhere;
};

// The configuration, ranks, tensors and optimizer that a step works on.
struct StepParts {
  const EngineConfig& config;
  const MeshGroups& ranks;
  std::vector<NamedTensor> parameters;  // trained ones, after casting
  std::unique_ptr<ModelStates> states;
  std::unique_ptr<Optimizer> optimizer;
  // Null if all ranks reduce every gradient of every step, or servers do.
  std::unique_ptr<GradientExchange> exchange;
};

// The result of the last step.
struct LastStep {
  double lr = 0;
  double loss_scale = 1;
  // L2 norm before clipping, a scalar in fp64 on the device that computed it.
  at::Tensor grad_norm;
  bool skipped = false;
  std::string skip_reason;  // empty if not skipped
};

// Called on one thread. All ranks call the same methods in the same order. The methods are
// collective unless ranks proceed independently (servers with staleness, weights_differ()).
class OptimizerStep {
 public:
  explicit OptimizerStep(StepParts parts);
  virtual ~OptimizerStep() = default;
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;

  // Clips the gradients, updates the weights and clears the gradients; skips the update if
  // gradients are not finite and the configuration allows that. `losses` are this rank's losses of
  // the step's micro-batches, for messages. Throws TrainError kBadInput if a parameter got no
  // gradient, or if gradients are not finite and the step cannot be skipped.
  void Make(const std::vector<at::Tensor>& losses);
  // Calls `action` at the beginning of the next Make, once. For a reader of weights or optimizer
  // state beside the passes.
  void BeforeNextUpdate(std::function<void()> action) { before_update_ = std::move(action); }
  // Counts a step that was a replay of a recorded Make ("cuda_graph").
  void CountReplay(const at::Tensor& grad_norm);
  // Takes the gradient norm of a step whose Make did not wait for the device. Called once for each
  // step, in order. Returns why that step was skipped, or "" if it was not skipped or if Make has
  // already reported it.
  virtual std::string ObserveGradNorm(double /*norm*/) { return ""; }

  // Resets what exchange and optimizer keep (RankTensors) to the values of a new run that starts
  // with rank 0's weights.
  void Restart();
  // Continues after `progress.steps` steps. `without` names the RankTensors() that no checkpoint
  // has restored; the state to which they belong starts anew.
  void Resume(const EngineProgress& progress, const std::set<std::string>& without);
  EngineProgress progress() const;          // without learning rates
  int64_t steps() const { return steps_; }  // steps made so far, including skipped ones
  int64_t skipped_steps() const { return skipped_steps_; }

  const LastStep& last() const { return last_; }
  double loss_scale() const { return scaler_ ? scaler_->scale : 1; }  // scale of the next step

  // Whether the weights of the ranks differ after some of the steps.
  bool weights_differ() const { return exchange_ && exchange_->weights_differ(); }
  // Returns the tensors that exchange and optimizer keep besides weights and Optimizer::States().
  std::vector<RankTensor> RankTensors() const;
  // Non-null if servers update as gradients arrive (parallel.staleness).
  virtual StaleTraining* stale_training() { return nullptr; }

  ModelStates& states() const { return *states_; }
  Optimizer& optimizer() const { return *optimizer_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

 protected:
  // Sets last_.grad_norm, and updates the weights or calls Skip or Fail.
  virtual void Update(const std::vector<at::Tensor>& losses) = 0;
  virtual double CurrentLr() { return optimizer_->lr(); }
  virtual void Resumed() {}

  // Returns the gradients of states_->parts(). Throws if one is missing.
  std::vector<at::Tensor> PartGradients();
  // Ends an Update whose gradients are not finite, beginning with the gradient of `parameter`.
  // Throws if the step cannot be skipped; collective then if `all_ranks`.
  void Skip(const std::string& parameter, const std::vector<at::Tensor>& losses, bool all_ranks);
  // Whether gradients that are not finite make no update: the step is skipped, or fails.
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
  std::function<void()> before_update_;  // null: nothing to call
};

// Moves the parameters and buffers of the module to the device of the ranks, casts them as the
// configuration says, gives recorded ones (`deferred`) their values and the others those of rank 0
// on all of ranks.data(), if they are whole also on all of ranks.tensor(), and makes the step that
// the configuration asks for:
// - ServerStep with parallel.staleness;
// - DeviceStep if waiting for gradients would keep a device idle and nothing needs their values on
//   the host;
// - SynchronousStep otherwise.
// Parameters of the states' parts count among the trained ones, in the module's order. Throws
// TrainError on all of ranks.data() if their models differ, with Passes::kMicroBatches also if
// nothing is trained, and if the optimizer does not fit. Collective.
std::unique_ptr<OptimizerStep> MakeOptimizerStep(const StepInputs& inputs);

}  // namespace dslaunch
