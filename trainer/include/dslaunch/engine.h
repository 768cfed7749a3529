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

// A scalar of a model's output and what it should have been.
using LossFunction = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

// The mean of the cross entropy of logits [..., classes] and classes int64 [...], in fp32.
at::Tensor CrossEntropy(const at::Tensor& output, const at::Tensor& target);

struct InitializeOptions {
  // For configurations without an "optimizer" section: that section as JSON, for example
  // {"type": "AdamW", "params": {"lr": 0.001}}. With one, the configuration's counts.
  std::string optimizer;
  // Of a model that was constructed under DeferInit; used up. At ZeRO stage 3 each rank then keeps
  // its part of a parameter at a time, and no rank ever holds the whole model.
  InitRecording* deferred = nullptr;
};

// Bytes of live tensors of one rank.
struct MemoryUse {
  int64_t parameters = 0;
  int64_t gradients = 0;  // accumulated, at their largest
  int64_t buckets = 0;    // what travels between the ranks beside them, at its largest
  int64_t optimizer = 0;  // its state, and the fp32 master weights
  int64_t buffers = 0;    // of the model
  // What a forward pass has left to its backward pass, at its largest; with "memory_breakdown"
  // only.
  int64_t activations = 0;
  // All that the allocator had given out, of what this thread allocated since it was first
  // measured; of memory_at_backward() only.
  int64_t allocated = 0;
};

// Where a run is, besides its tensors.
struct EngineProgress {
  int64_t steps = 0;              // optimizer steps, skipped ones included
  int64_t skipped = 0;            // of them
  int64_t updates = 0;            // that the optimizer's state has seen
  int64_t scheduled_updates = 0;  // that the learning rate counts: the same but for partial loads
  // Of the loss scaler, where there is one: trainer/precision/loss_scaler.h.
  double loss_scale = 1;
  int64_t scaler_iteration = 0, scaler_last_overflow = -1, scaler_hysteresis = 0;
};

// A program's own words in a checkpoint, as UTF-8.
using ClientState = std::map<std::string, std::string>;

// As DeepSpeed's load_checkpoint has them.
struct LoadCheckpointOptions {
  bool load_module_only = false;         // weights and buffers, and nothing of the following
  bool load_optimizer_states = true;     // else they start anew
  bool load_lr_scheduler_states = true;  // else the schedule starts anew
};

struct LoadedCheckpoint {
  std::string folder;  // of this checkpoint
  std::string reason;  // one line: what was loaded, and what was passed over because of damage
  ClientState client_state;
  // EngineCore::micro_steps() when it was saved. A step that had begun then begins anew: a
  // checkpoint holds no gradients.
  int64_t micro_steps = 0;
};

// What the engine does whatever the model's type. One thread. Errors are TrainError (what a user
// can mend) or c10::Error.
class EngineCore {
 public:
  // Trains those parameters of `module` that require a gradient, and casts parameters and buffers
  // as the configuration says. Throws on every rank, naming the parameter and a rank, where the
  // ranks' models differ. All ranks leave with rank 0's values. `module` and `group` must outlive
  // this.
  EngineCore(const EngineConfig& config, torch::nn::Module& module, const ProcessGroup& group,
             InitRecording* deferred = nullptr);
  // Of one stage of a pipeline: `module` has its parameters only, and this is to be used through an
  // EngineBatch (trainer/engine/engine_batch.h). Throws on every rank of all stages, naming ranks
  // and what they have, where their configurations or the models of a stage's replicas differ.
  EngineCore(const EngineConfig& config, torch::nn::Module& module, const EngineRanks& ranks,
             InitRecording* deferred = nullptr);
  // `config` is the path of a DeepSpeed configuration, or JSON text, which begins with '{'.
  EngineCore(const std::string& config, torch::nn::Module& module, const ProcessGroup& group,
             const InitializeOptions& options);
  ~EngineCore();
  EngineCore(EngineCore&&) noexcept;

  // What the forward pass and the loss are to run under.
  AutocastScope Autocast() const;
  // An input of the model, in the model's dtype where that is a 16-bit one.
  at::Tensor ToModelDtype(const at::Tensor& input) const;

  // Around the model's forward pass. In evaluation (mode, or without gradients) they do nothing.
  void BeforeForward();
  void AfterForward(const std::vector<at::Tensor>& outputs);

  // Gradients of loss / gradient_accumulation_steps (of loss itself without `scale_by_steps`),
  // averaged over the ranks on the last micro-batch of a step. Throws for a loss that is no scalar
  // or depends on nothing that is trained, in evaluation mode, without a forward pass through the
  // engine, and a second time without Step.
  void Backward(const at::Tensor& loss, bool scale_by_steps = true);

  // Ends a micro-batch; on the last one of a step clips, updates and clears the gradients, and
  // returns true. Throws without Backward; naming it, where a parameter got no gradient; and,
  // naming step, parameter and, where its loss was not finite, rank, for gradients that are not
  // finite: in fp32, or where the loss scale cannot be lowered any more.
  bool Step();

  void SetTrain(bool on);

  // At ZeRO stage 3 every forward pass gathers parameters from all ranks, and in a pipeline it goes
  // over all stages: all ranks must run the same ones, in evaluation too.
  bool ForwardIsCollective() const;

  bool IsGradientAccumulationBoundary() const;
  int64_t train_batch_size() const;
  int64_t micro_batch_size() const;
  int64_t accumulation_steps() const;

  int64_t micro_steps() const;    // engine.Step() calls
  int64_t global_steps() const;   // optimizer steps, skipped ones included
  int64_t skipped_steps() const;  // those whose gradients were not finite
  bool skipped() const;           // whether the last step was one
  // Why, for people: "the gradient of fc1.weight is not finite; loss scale 65536 -> 32768". Empty
  // where it was not.
  const std::string& skip_reason() const;
  double lr() const;       // of the next step, as DeepSpeed's get_lr() has it after engine.step()
  double step_lr() const;  // of the last step
  // Of the last step: L2 of the averaged gradient, before clipping. Not finite where skipped.
  double grad_norm() const;
  // The same as a scalar in fp64 where it was computed, for who does not want to wait for a GPU.
  at::Tensor grad_norm_on_device() const;
  double loss_scale() const;       // of the next step; 1 without a scaler
  double step_loss_scale() const;  // of the last step
  // Of the step so far, or of the last one: seconds from the start of each forward pass until the
  // last gradient of this rank was there. What follows in backward waits for other ranks. 0 in a
  // pipeline.
  double compute_s() const;
  MemoryUse memory() const;
  // What there was at the same time, when a backward pass began with the largest activations. With
  // "memory_breakdown" only.
  const MemoryUse& memory_at_backward() const;

  // What this rank holds of everything that training changes: weights (fp32 masters where there
  // are) and buffers by their module path, then "optimizer/<kind>/<parameter>"; of one stage of a
  // pipeline its own. The tensors themselves, not copies.
  std::vector<TensorPart> ModelState() const;
  std::vector<TensorPart> OptimizerState() const;
  EngineProgress progress() const;
  const EngineConfig& config() const;  // as resolved
  const ProcessGroup& group() const;   // all ranks of the job
  const EngineRanks& ranks() const;    // for who knows trainer/parallel/engine_ranks.h

  // Where the engine does not wait for a GPU it does not know whether a step's gradient was finite:
  // who reads grad_norm_on_device() tells it, of each step and in their order, before a checkpoint
  // is saved. Returns what skip_reason() would have said.
  std::string ObserveGradNorm(double norm);

  // For a step that is recorded and replayed ("cuda_graph"). The first before each step, however it
  // is made; the second in place of the calls of a step whose work a replay has done. Its
  // gradient's norm is what grad_norm_on_device() gave in the recording.
  void PrepareStep();
  void StepReplayed(const at::Tensor& grad_norm);

  // Call it after ModelState() was overwritten, on every rank: makes the model follow it. The
  // second also takes up where a run was.
  void WeightsChanged();
  void Resume(const EngineProgress& progress);

  // Collective. Every rank writes its part of the checkpoint `dir`/`tag`; a checkpoint that had the
  // tag is replaced, whatever is killed when. Without a tag it is "global_step<N>". The file
  // `dir`/latest then names it. All nodes must share `dir`. Where ranks give different tags, the
  // configuration's checkpoint.tag_validation says whether to ignore it, to warn or to throw; rank
  // 0's counts. Throws on every rank where one of them fails, naming it.
  void SaveCheckpoint(const std::string& dir, const std::string& tag = "",
                      const ClientState& client_state = {}) const;
  // Collective. Loads a checkpoint that any number of ranks has saved, at any ZeRO stage and in any
  // precision; without a tag that which `latest` names, or the newest other one where that one is
  // damaged. nullopt where there is none at all. Each rank's default CPU generator goes on where it
  // was if as many ranks have saved, and is left alone otherwise. Throws on every rank where the
  // tag, or any whole checkpoint, is missing, and where it is of another model or optimizer; then
  // the state is partly loaded.
  std::optional<LoadedCheckpoint> LoadCheckpoint(const std::string& dir,
                                                 const std::string& tag = "",
                                                 const LoadCheckpointOptions& options = {});

 private:
  friend class EngineBatch;
  friend class GatheredParameters;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Makes parameters of an engine's model whole, and writable, while it lives: at ZeRO stage 3 a rank
// holds its part of each only, and what reads one elsewhere than in a forward or backward pass is
// refused. At the other stages they always are. Collective: every rank must make it of the same
// parameters, and end it; of a pipeline every rank of the stage.
class GatheredParameters {
 public:
  // With `modifier_rank`, that rank may change the values, which then become all ranks', optimizer
  // weights included; without, changes are lost or not the same on all ranks. In a pipeline it
  // counts this stage's ranks, and what stages share must be changed alike on all of them.
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

// M is any torch::nn::Module; Forward takes and returns what its forward does. Tensors among its
// arguments that are of floating point get the model's dtype where that is a 16-bit one.
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

  // EngineCore has these.
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

// `config` is what EngineCore's constructors take.
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
