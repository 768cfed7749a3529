// The engine: a user's model trained by all ranks under a DeepSpeed configuration.
//
//   dslaunch::ProcessGroup group = dslaunch::InitProcessGroup();
//   auto engine = dslaunch::Initialize("ds_config.json", std::make_shared<Mlp>(), group);
//   engine.SetTrain();
//   for (...) {
//     engine.Backward(engine.Loss(engine.Forward(images), labels));
//     engine.Step();
//   }
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dslaunch/autocast.h"
#include "dslaunch/deferred_init.h"
#include "dslaunch/process_group.h"
#include "dslaunch/tensor_part.h"

namespace dslaunch {

struct EngineConfig;
struct EngineRanks;

// Loss of a batch: takes the model's output and the target, returns a scalar tensor.
using LossFunction = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

// Mean cross entropy in fp32. output: logits [..., classes], any floating-point type; target: class
// indices, int64 [...]. Returns a scalar.
at::Tensor CrossEntropy(const at::Tensor& output, const at::Tensor& target);

struct InitializeOptions {
  // The "optimizer" section as JSON, for example {"type": "AdamW", "params": {"lr": 0.001}}. Used
  // only if the configuration has no such section.
  std::string optimizer;
  // The recording of a model that was constructed under DeferInit, or null. Initialize consumes it.
  // The caller owns it. At ZeRO stage 3 each rank then materializes one parameter at a time and
  // keeps its shard, so no rank ever holds the whole model.
  InitRecording* deferred = nullptr;
};

// Bytes of live tensors on one rank.
struct MemoryUse {
  int64_t parameters = 0;
  int64_t gradients = 0;  // accumulated gradients, at their largest
  int64_t buckets = 0;    // communication buffers besides the gradients, at their largest
  int64_t optimizer = 0;  // optimizer state and fp32 master weights
  int64_t buffers = 0;    // buffers of the model
  // Tensors that the forward pass keeps for the backward pass, at their largest. Measured only if
  // the configuration has "memory_breakdown".
  int64_t activations = 0;
  // Bytes that this thread has allocated and not freed since its first measurement. Set only by
  // memory_at_backward().
  int64_t allocated = 0;
};

// The position of a training run, without its tensors.
struct EngineProgress {
  int64_t steps = 0;              // optimizer steps, skipped ones included
  int64_t skipped = 0;            // skipped steps
  int64_t updates = 0;            // updates that the optimizer state has seen
  int64_t scheduled_updates = 0;  // updates that the schedule has seen; differs after partial loads
  // State of the loss scaler, if there is one; see trainer/precision/loss_scaler.h.
  double loss_scale = 1;
  int64_t scaler_iteration = 0, scaler_last_overflow = -1, scaler_hysteresis = 0;
};

// Data of the program that a checkpoint stores. Keys and values are UTF-8.
using ClientState = std::map<std::string, std::string>;

// The options of DeepSpeed's load_checkpoint.
struct LoadCheckpointOptions {
  bool load_module_only = false;         // weights and buffers only
  bool load_optimizer_states = true;     // false: the state starts at zero
  bool load_lr_scheduler_states = true;  // false: the schedule starts at step 1
};

struct LoadedCheckpoint {
  std::string folder;  // path of the checkpoint
  std::string reason;  // one line: what was loaded, and which damaged checkpoints were skipped
  ClientState client_state;
  // EngineCore::micro_steps() at the time of the save. A partly accumulated step restarts at its
  // first micro-batch, because a checkpoint holds no gradients.
  int64_t micro_steps = 0;
};

// The part of the engine that does not depend on the model's type. Not thread-safe: use it from one
// thread. Throws TrainError for errors that the user can correct, and c10::Error otherwise.
class EngineCore {
 public:
  // Trains the parameters of `module` that require a gradient. Casts parameters and buffers to the
  // dtypes of the configuration and copies rank 0's values to all ranks. Collective: every rank
  // must call it. Throws on every rank if the ranks' models differ, naming a parameter and a rank.
  // `module` and `group` must outlive this object.
  EngineCore(const EngineConfig& config, torch::nn::Module& module, const ProcessGroup& group,
             InitRecording* deferred = nullptr);
  // For one stage of a pipeline: `module` holds the parameters of this stage only. Use the object
  // through an EngineBatch (trainer/engine/engine_batch.h). Throws on every rank of all stages if
  // their configurations differ, or if the models of a stage's replicas differ; the message names
  // the ranks and their values.
  EngineCore(const EngineConfig& config, torch::nn::Module& module, const EngineRanks& ranks,
             InitRecording* deferred = nullptr);
  // `config` is the path of a DeepSpeed configuration, or JSON text that begins with '{'.
  EngineCore(const std::string& config, torch::nn::Module& module, const ProcessGroup& group,
             const InitializeOptions& options);
  ~EngineCore();
  EngineCore(EngineCore&&) noexcept;

  // The autocast scope for the forward pass and the loss. Keep it alive while they run.
  AutocastScope Autocast() const;
  // Casts a floating-point input to the model's dtype if that is a 16-bit type; returns any other
  // input unchanged.
  at::Tensor ToModelDtype(const at::Tensor& input) const;

  // Call before and after the model's forward pass. In evaluation mode or without gradients they do
  // nothing.
  void BeforeForward();
  void AfterForward(const std::vector<at::Tensor>& outputs);

  // Computes the gradients of loss / gradient_accumulation_steps (of `loss` itself if
  // `scale_by_steps` is false). On the last micro-batch of a step the gradients are averaged over
  // the ranks. Throws if the loss is not a scalar or depends on no trained parameter, in evaluation
  // mode, without a preceding forward pass through the engine, and if called twice without Step.
  void Backward(const at::Tensor& loss, bool scale_by_steps = true);

  // Ends a micro-batch. On the last micro-batch of a step it clips the gradients, updates the
  // weights, clears the gradients and returns true; otherwise it returns false. Throws without a
  // preceding Backward; if a parameter got no gradient (the message names it); and if gradients are
  // not finite in fp32 or at the minimum loss scale (the message names the step, the parameter and,
  // if a loss was not finite, the rank).
  bool Step();

  void SetTrain(bool on);

  // True if a forward pass needs all ranks: at ZeRO stage 3 it gathers parameters from all ranks,
  // and in a pipeline it runs through all stages. All ranks must then run the same forward passes,
  // in evaluation too.
  bool ForwardIsCollective() const;

  bool IsGradientAccumulationBoundary() const;
  int64_t train_batch_size() const;
  int64_t micro_batch_size() const;
  int64_t accumulation_steps() const;

  int64_t micro_steps() const;    // engine.Step() calls
  int64_t global_steps() const;   // optimizer steps, skipped ones included
  int64_t skipped_steps() const;  // steps whose gradients were not finite
  bool skipped() const;           // true if the last step was skipped
  // Why the last step was skipped, for example "the gradient of fc1.weight is not finite; loss
  // scale 65536 -> 32768". Empty if it was not skipped.
  const std::string& skip_reason() const;
  double lr() const;       // of the next step, like DeepSpeed's get_lr() after engine.step()
  double step_lr() const;  // of the last step
  // L2 norm of the averaged gradient of the last step, before clipping. Not finite if the step was
  // skipped.
  double grad_norm() const;
  // The same as an fp64 scalar on the device that computed it. Reading it from a GPU does not block
  // the host.
  at::Tensor grad_norm_on_device() const;
  double loss_scale() const;       // of the next step; 1 without a scaler
  double step_loss_scale() const;  // of the last step
  // Compute time of the current step, or of the last one, in seconds: from the start of each
  // forward pass to the last gradient of this rank. The rest of the backward pass is time spent
  // waiting for other ranks. 0 in a pipeline.
  double compute_s() const;
  MemoryUse memory() const;
  // Memory at the start of the backward pass that had the largest activations. All values are from
  // that moment. Measured only with "memory_breakdown".
  const MemoryUse& memory_at_backward() const;

  // The tensors that training changes, as far as this rank holds them (in a pipeline: those of its
  // stage). ModelState: weights (fp32 master weights if there are any) and buffers, named by module
  // path. OptimizerState: names are "optimizer/<kind>/<parameter>". The tensors are not copies:
  // writing to them changes the run.
  std::vector<TensorPart> ModelState() const;
  std::vector<TensorPart> OptimizerState() const;
  EngineProgress progress() const;
  const EngineConfig& config() const;  // as resolved
  const ProcessGroup& group() const;   // all ranks of the job
  const EngineRanks& ranks() const;    // see trainer/parallel/engine_ranks.h

  // On a GPU without host synchronization the engine does not know whether a step's gradient was
  // finite. The caller then reads grad_norm_on_device() and passes each value here, once per step,
  // in order, and before a checkpoint is saved. Returns the text that skip_reason() would have.
  std::string ObserveGradNorm(double norm);

  // For steps that are recorded once and replayed ("cuda_graph"). Call PrepareStep before every
  // step. Call StepReplayed after a replay, in place of Forward, Backward and Step; `grad_norm` is
  // the tensor that grad_norm_on_device() returned in the recording.
  void PrepareStep();
  void StepReplayed(const at::Tensor& grad_norm);

  // WeightsChanged: call it on every rank after the tensors of ModelState() were overwritten; it
  // copies them to the model's weights. Resume does the same and also restores the position of the
  // run.
  void WeightsChanged();
  void Resume(const EngineProgress& progress);

  // Collective. Every rank writes its part of the checkpoint `dir`/`tag`. An existing checkpoint of
  // that tag is replaced atomically: a kill at any time leaves the old one or the new one. The
  // default tag is "global_step<N>". The file `dir`/latest then names the checkpoint. `dir` must be
  // shared by all nodes. If ranks pass different tags, the configuration's
  // checkpoint.tag_validation selects ignore, warn or fail; the tag of rank 0 is used. If one rank
  // fails, every rank throws and the message names it.
  void SaveCheckpoint(const std::string& dir, const std::string& tag = "",
                      const ClientState& client_state = {}) const;
  // Collective. Loads a checkpoint of any number of ranks, ZeRO stage and precision. Without a tag
  // it loads the one that `latest` names, or the newest intact one if that is damaged. Returns
  // nullopt if `dir` has no checkpoint. The default CPU generator of each rank is restored if the
  // number of ranks is the same, and unchanged otherwise. Throws on every rank if the tag or every
  // intact checkpoint is missing, or if the checkpoint belongs to another model or optimizer; the
  // state is then partly loaded.
  std::optional<LoadedCheckpoint> LoadCheckpoint(const std::string& dir,
                                                 const std::string& tag = "",
                                                 const LoadCheckpointOptions& options = {});

 private:
  friend class EngineBatch;
  friend class GatheredParameters;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Gathers parameters of an engine's model for the lifetime of this object and makes them writable.
// At ZeRO stage 3 each rank holds only its shard, and reads outside of the forward and backward
// pass throw; at the other stages parameters are always complete. Collective: every rank (in a
// pipeline: every rank of the stage) must construct and destroy it with the same parameters.
class GatheredParameters {
 public:
  // With `modifier_rank`, that rank may change the values; they are sent to all ranks when the
  // object is destroyed, including the master weights. Without it, changes are lost or differ
  // between ranks. In a pipeline the rank counts within this stage, and tied weights must be
  // changed identically in all stages that share them.
  GatheredParameters(EngineCore& core, std::vector<at::Tensor> parameters,
                     std::optional<int> modifier_rank = {});
  ~GatheredParameters() noexcept(false);
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;

 private:
  EngineCore& core_;
  std::vector<at::Tensor> parameters_;
  std::optional<int> modifier_rank_;
};

// An engine with the model's type. M is any torch::nn::Module. Forward takes the arguments of
// M::forward and returns its result; floating-point tensor arguments are cast to the model's dtype
// if that is a 16-bit type. The engine shares ownership of the model.
template <class M>
class Engine {
 public:
  Engine(EngineCore core, std::shared_ptr<M> model, LossFunction loss)
      : model_(std::move(model)), loss_(std::move(loss)), core_(std::move(core)) {}

  template <class... Args>
  auto Forward(Args&&... args) {
    const AutocastScope autocast = core_.Autocast();
    core_.BeforeForward();
    auto output = model_->forward(Input(std::forward<Args>(args))...);
    if constexpr (std::is_same_v<decltype(output), at::Tensor>) {
      core_.AfterForward({output});
    } else {
      core_.AfterForward({});
    }
    return output;
  }
  at::Tensor Loss(const at::Tensor& output, const at::Tensor& target) const {
    const AutocastScope autocast = core_.Autocast();
    return loss_(output, target);
  }
  void Backward(const at::Tensor& loss, bool scale_by_steps = true) {
    core_.Backward(loss, scale_by_steps);
  }
  bool Step() { return core_.Step(); }

  // See EngineCore.
  void SaveCheckpoint(const std::string& dir, const std::string& tag = "",
                      const ClientState& client_state = {}) const {
    core_.SaveCheckpoint(dir, tag, client_state);
  }
  std::optional<LoadedCheckpoint> LoadCheckpoint(const std::string& dir,
                                                 const std::string& tag = "",
                                                 const LoadCheckpointOptions& options = {}) {
    return core_.LoadCheckpoint(dir, tag, options);
  }

  void SetTrain() { core_.SetTrain(true); }
  void SetEval() { core_.SetTrain(false); }
  bool IsGradientAccumulationBoundary() const { return core_.IsGradientAccumulationBoundary(); }
  int64_t global_steps() const { return core_.global_steps(); }
  int64_t skipped_steps() const { return core_.skipped_steps(); }
  double lr() const { return core_.lr(); }
  double loss_scale() const { return core_.loss_scale(); }

  const M& model() const { return *model_; }
  const EngineCore& core() const { return core_; }
  EngineCore& core() { return core_; }

 private:
  template <class T>
  decltype(auto) Input(T&& argument) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>) {
      return core_.ToModelDtype(argument);
    } else {
      return std::forward<T>(argument);
    }
  }

  std::shared_ptr<M> model_;
  LossFunction loss_;
  EngineCore core_;
};

// Creates an engine for `model`. `config`: see the constructors of EngineCore. Collective. `group`
// must outlive the engine.
template <class M>
Engine<M> Initialize(const EngineConfig& config, std::shared_ptr<M> model,
                     const ProcessGroup& group, LossFunction loss = CrossEntropy,
                     InitRecording* deferred = nullptr) {
  EngineCore core(config, *model, group, deferred);
  return Engine<M>(std::move(core), std::move(model), std::move(loss));
}
template <class M>
Engine<M> Initialize(const std::string& config, std::shared_ptr<M> model, const ProcessGroup& group,
                     LossFunction loss = CrossEntropy, const InitializeOptions& options = {}) {
  EngineCore core(config, *model, group, options);
  return Engine<M>(std::move(core), std::move(model), std::move(loss));
}

}  // namespace dslaunch
