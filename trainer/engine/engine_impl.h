// What an engine holds, on which the methods of EngineCore and EngineBatch work, and the optimizer
// step, which is the same for both.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/config/engine_config.h"
#include "trainer/device/time_spans.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/engine/layer_runner.h"
#include "trainer/engine/pipeline_peers.h"
#include "trainer/engine/whole_model_guard.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/parallel/model_states.h"
#include "trainer/step/optimizer_step.h"

namespace dslaunch {

class EngineCore::Impl {
 public:
  Impl(const EngineConfig& config, torch::nn::Module& module,
       std::shared_ptr<const MeshGroups> ranks, Passes passes, InitRecording* deferred,
       const OptimizerFactory& make_optimizer = nullptr);

  bool Trains() const { return at::GradMode::is_enabled() && module_.is_training(); }
  bool Boundary() const { return (micro_steps_ + 1) % config_.batch.accumulation_steps == 0; }
  Pass CurrentPass() const;
  ModelStates& states() const { return step_->states(); }
  Optimizer& optimizer() const { return step_->optimizer(); }
  const std::vector<NamedTensor>& parameters() const { return step_->parameters(); }

  // Throws where a parameter that was frozen when the engine was made requires a gradient now.
  void CheckFrozen() const;

  // Throw where Backward must not be called (with this loss).
  void CheckLoss(const at::Tensor& loss) const;
  void CheckBackward(const at::Tensor& loss) const;
  // What the backward pass of one of `parts` micro-batches starts from. Keeps the loss for
  // messages.
  at::Tensor ScaledLoss(const at::Tensor& loss, int64_t parts);

  // Whether a training pass computes parts of the model again.
  bool recomputes() const { return recomputed_ && Trains(); }

  // At the start of a pass, and of its backward pass.
  void MeterBegin();
  void MeterBackward();
  MemoryUse memory() const;

  // Makes the model follow the weights where the ranks' differ. Not collective.
  void FollowApart() const {
    if (step_->weights_differ()) states().CopyMasterToModel();
  }

  // What checkpoints hold besides ModelState and OptimizerState, without the ranks' numbers.
  std::vector<RankTensor> RankTensors() const;

  // What belongs to a part of a parameter.
  TensorPart StatePart(const std::string& prefix, size_t part, const at::Tensor& tensor) const;

  // For the full and local tensors of a parameter; `call` is for messages. The names throw for a
  // tensor that is not one of the model's parameters, the first also for a frozen one.
  const std::string& TrainedName(const std::string& call, const at::Tensor& parameter) const;
  const std::string& NameOf(const std::string& call, const at::Tensor& parameter) const;
  // Of what the optimizer keeps under `key`; throws where it keeps no such thing.
  std::string StateKey(const std::string& call, const at::Tensor& parameter,
                       const std::string& key) const;
  // This rank's parts of the gradients; throws where they are not those of all ranks.
  std::vector<TensorPart> GradientState(const std::string& call) const;
  // How the parameter is cut over the tensor axis; null if it is not.
  const ParameterCut* CutOf(const at::Tensor& parameter) const;
  // The shape of the whole parameter.
  std::vector<int64_t> WholeShape(const at::Tensor& parameter) const;
  // Collective: returns the whole tensor `name` of the ranks' `state`, in at least fp32 and
  // WholeShape(parameter); zeros if no rank has it.
  at::Tensor Whole(const std::vector<TensorPart>& state, const std::string& name,
                   const at::Tensor& parameter) const;
  // Sets this rank's part of it. Not collective.
  void SetWhole(const std::vector<TensorPart>& state, const std::string& name,
                const at::Tensor& value) const;
  // This rank's part of the tensor `name` of `state`: a copy of one dimension, in at least fp32, of
  // no elements where this rank has none. And the reverse, which throws for another number of
  // elements.
  at::Tensor Local(const std::vector<TensorPart>& state, const std::string& name,
                   const at::Tensor& parameter) const;
  void SetLocal(const std::string& call, const std::vector<TensorPart>& state,
                const std::string& name, const at::Tensor& value) const;
  // Throws where every rank has whole gradients and this parameter got none.
  void CheckHasGradient(const std::string& call, const std::vector<TensorPart>& gradients,
                        const std::string& name) const;

  // The step's next micro-batch is its first again. Its gradients, and the pass that is open, are
  // given up by GiveUp, which may wait for other ranks: before the next training pass.
  void StartStepOver();
  void GiveUp();
  // Throws kBadInput with the same text where parameters were read that are not there.
  static void RefuseIfNotGathered(const c10::Error& error);
  // Calls StartStepOver where `action` throws.
  void OrStartStepOver(const std::function<void()>& action);
  // Makes the optimizer step. Collective.
  void EndStep();

  EngineConfig config_;
  torch::nn::Module& module_;
  const std::shared_ptr<const MeshGroups> ranks_;
  const Passes passes_;
  const std::vector<ParameterInfo> elsewhere_;  // parameters that only other stages have
  // The forward pass where the configuration has number_checkpoints.
  const std::optional<LayerRunner> recomputed_;
  WholeModelGuard guard_;
  std::optional<ExchangeWatch> watch_;  // in a training forward pass
  const std::unique_ptr<OptimizerStep> step_;
  const std::vector<NamedTensor> frozen_;  // parameters that are not trained
  std::vector<double> set_lrs_;            // by SetLearningRates; empty: none
  bool in_pass_ = false;       // from a training forward pass to the end of its Backward
  int64_t nested_passes_ = 0;  // forward passes of inference that run in it
  bool forward_done_ = false;
  bool backward_done_ = false;
  int no_sync_scopes_ = 0;
  bool unsynced_ = false;        // the last training pass began in a NoSyncScope
  bool graph_retained_ = false;  // its last Backward says that another one follows
  bool gives_up_ = false;        // before the next training pass
  int64_t micro_steps_ = 0;
  std::vector<at::Tensor> losses_;  // of the step so far
  TimeSpans compute_;
  const c10::Device timed_;  // where that is timed; a recorded step has no times
  std::optional<ActivationMeter> meter_;
  int64_t live_before_ = 0;  // bytes, at the start of this pass
  MemoryUse at_backward_;    // with the largest activations
};

}  // namespace dslaunch
