// Defines the engine, which trains a user's model on all ranks under a DeepSpeed configuration.
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
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dslaunch/autocast.h"
#include "dslaunch/deferred_init.h"
#include "dslaunch/initialize_options.h"
#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "dslaunch/tensor_part.h"

namespace dslaunch {

struct EngineConfig;
struct EngineParts;  // defined in trainer/engine/engine_parts.h
class MeshGroups;
class StaleTraining;
class TimeSpans;

// Computes the loss of a batch from the model's output and the target, as a scalar tensor.
using LossFunction = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

// Returns the mean cross entropy as a scalar in fp32. `output` has logits [..., classes] of any
// floating-point type, and `target` has class indices, int64 [...].
at::Tensor CrossEntropy(const at::Tensor& output, const at::Tensor& target);

struct BackwardOptions {
  // If false, computes the gradients of the loss itself, not of loss / gradient_accumulation_steps.
  bool scale_by_steps = true;
  // If true, keeps the graph for another Backward of the same forward pass. The gradients of all
  // these backward passes are summed. The ranks exchange the sum in the last of these passes, which
  // must not set this option.
  bool retain_graph = false;
};

// Memory use on one rank, in bytes of live tensors.
struct MemoryUse {
  int64_t parameters = 0;
  int64_t gradients = 0;  // peak size of the accumulated gradients
  int64_t buckets = 0;    // peak size of the communication buffers, without the gradients
  int64_t optimizer = 0;  // optimizer state and fp32 master weights
  int64_t buffers = 0;    // buffers of the model, such as running means
  // Peak size of the tensors that the forward pass keeps for the backward pass. Measured only if
  // the configuration has "memory_breakdown".
  int64_t activations = 0;
  // Bytes that this thread has allocated and not freed since its first measurement. Only
  // memory_at_backward() sets this value.
  int64_t allocated = 0;
};

// The position of a training run: its counters and settings, without tensors.
struct EngineProgress {
  int64_t steps = 0;    // number of optimizer steps, including skipped steps
  int64_t skipped = 0;  // number of skipped steps
  int64_t updates = 0;  // number of updates in the optimizer's state
  // Number of updates that the learning-rate schedule has counted. Differs from `updates` after
  // partial loads.
  int64_t scheduled_updates = 0;
  // State of the loss scaler (trainer/precision/loss_scaler.h); the defaults if there is no scaler.
  double loss_scale = 1;
  int64_t scaler_iteration = 0, scaler_last_overflow = -1, scaler_hysteresis = 0;
  // The values passed to SetLearningRates; empty if SetLearningRates was not called.
  std::vector<double> learning_rates = {};
};

// Data of the program in a checkpoint. Keys and values are UTF-8.
using ClientState = std::map<std::string, std::string>;

// The options of DeepSpeed's load_checkpoint.
struct LoadCheckpointOptions {
  // If true, LoadCheckpoint throws unless the model and the checkpoint have the same parameters and
  // buffers. If false, tensors that only the model has are unchanged, and tensors that only the
  // checkpoint has are ignored, both with their optimizer state. A tensor with another shape always
  // throws.
  bool load_module_strict = true;
  bool load_module_only = false;         // true to load only weights and buffers
  bool load_optimizer_states = true;     // false to start with an optimizer state of zero
  bool load_lr_scheduler_states = true;  // false to start the learning-rate schedule at step 1
};

struct LoadedCheckpoint {
  std::string folder;  // path of the checkpoint
  // One line that names the loaded checkpoint and the damaged checkpoints that were skipped.
  std::string reason;
  ClientState client_state;
  // Sorted names of parameters and buffers that only the model has (missing_keys) or only the
  // checkpoint has (unexpected_keys), the same on all ranks. Empty if load_module_strict is true.
  std::vector<std::string> missing_keys, unexpected_keys;
  // EngineCore::micro_steps() when the checkpoint was saved. A partly accumulated step restarts at
  // its first micro-batch, because a checkpoint contains no gradients.
  int64_t micro_steps = 0;
};

class NoSyncScope;

// The kind of passes that compute the gradients of a step.
enum class Passes {
  kMicroBatches,  // one forward and one backward pass for each micro-batch
  kBatches,       // any number of forward and backward passes, in any order (used by pipelines)
};

// Provides an engine's sizes, counters, learning rates, norms, times and memory use. A base class
// of EngineCore.
class EngineReadings {
 public:
  // Returns whether a forward pass needs all ranks: at ZeRO stage 3 it gathers parameters from all
  // ranks, and in a pipeline it runs through all stages. All ranks must then run the same forward
  // passes, in evaluation too.
  bool ForwardIsCollective() const;

  bool IsGradientAccumulationBoundary() const;
  int64_t train_batch_size() const;
  int64_t micro_batch_size() const;
  int64_t accumulation_steps() const;

  int64_t micro_steps() const;   // returns the number of Step() calls
  int64_t global_steps() const;  // returns the number of optimizer steps, including skipped steps
  // Returns the number of steps skipped because a gradient was not finite.
  int64_t skipped_steps() const;
  bool skipped() const;  // returns whether the last step was skipped
  // Returns why the last step was skipped, for example "the gradient of fc1.weight is not finite;
  // loss scale 65536 -> 32768"; empty if it was not skipped.
  const std::string& skip_reason() const;
  // Returns the next step's learning rate, like get_lr() after step() in DeepSpeed.
  double lr() const;
  double step_lr() const;  // returns the learning rate of the last step
  // Returns the learning rates of the next step: one for each of the configuration's
  // optimizer.param_groups, in order, then the rate of all other parameters, which is lr().
  std::vector<double> GetLearningRates() const;
  // Returns the L2 norm of the averaged gradient of the last step, before clipping. Not finite if
  // the step was skipped.
  double grad_norm() const;
  // Returns grad_norm() as an fp64 scalar on the device that computed the norm. On a GPU this does
  // not block the host.
  at::Tensor grad_norm_on_device() const;
  double loss_scale() const;       // returns the loss scale of the next step; 1 without a scaler
  double step_loss_scale() const;  // returns the loss scale of the last step
  // Returns the compute time of the current or the last step, in seconds: from the start of each
  // forward pass to the last gradient of this rank. The rest of the backward pass is spent waiting
  // for other ranks. On a GPU the time is measured on the GPU, and the call waits until the GPU has
  // completed the passes. Returns 0 in a pipeline.
  double compute_s() const;
  // Returns the measured spans of compute_s(), without waiting for the GPU.
  TimeSpans compute_time() const;
  MemoryUse memory() const;
  // Returns the memory at the start of the backward pass that had the largest activations. All
  // values are from that moment. Measured only if the configuration has "memory_breakdown".
  const MemoryUse& memory_at_backward() const;

  EngineProgress progress() const;
  const EngineConfig& config() const;  // returns the configuration with all defaults resolved
  const ProcessGroup& group() const;   // returns the group of all ranks of the job
  const MeshGroups& ranks() const;  // returns the groups of this rank (trainer/mesh/mesh_groups.h)

 protected:
  explicit EngineReadings(std::shared_ptr<EngineParts> parts) : parts_(std::move(parts)) {}
  EngineReadings(EngineReadings&&) noexcept = default;
  ~EngineReadings() = default;

  // Sole owner of the engine's components. Guards hold weak pointers to them to detect that the
  // engine was destroyed.
  std::shared_ptr<EngineParts> parts_;
};

// Reads and writes the tensors of an engine. A base class of EngineCore.
class EngineTensors : public EngineReadings {
 public:
  // Counterparts of DeepSpeed's safe_get_full_* and safe_set_full_*: access one whole parameter,
  // its gradient, or its optimizer state, at any ZeRO stage. `parameter` is a parameter of the
  // model. The calls for a gradient or a state throw if it is frozen. Collective: every rank (in a
  // pipeline: every rank of the stage) makes the same calls. Results are copies on the parameter's
  // device in the shape of the whole parameter, even if tensor parallelism cuts it. Their dtype is
  // fp32 (fp64 for a parameter in fp64). Set* take the same value on all ranks, in any dtype.
  //
  // Returns the fp32 master weight, or the parameter itself if there is no master weight.
  at::Tensor GetFullFp32Parameter(const at::Tensor& parameter) const;
  // Sets the parameter and, if there is one, its fp32 master weight.
  void SetFullFp32Parameter(const at::Tensor& parameter, const at::Tensor& value);
  // Returns the gradient averaged over the ranks, without the loss scale, before clipping; zeros if
  // there is none. Throws unless called between the last Backward of a step and its Step.
  at::Tensor GetFullGradient(const at::Tensor& parameter) const;
  // Sets the gradient that GetFullGradient returns. Throws under the same condition.
  void SetFullGradient(const at::Tensor& parameter, const at::Tensor& value);
  // Returns the optimizer state that PyTorch names `key`, for example "exp_avg". Throws if the
  // optimizer does not keep this state.
  at::Tensor GetFullOptimizerState(const at::Tensor& parameter, const std::string& key) const;
  // Sets the optimizer state that GetFullOptimizerState returns. Throws under the same condition.
  void SetFullOptimizerState(const at::Tensor& parameter, const at::Tensor& value,
                             const std::string& key);

  // Counterparts of DeepSpeed's safe_get_local_* and safe_set_local_*: access only this rank's part
  // of a parameter (with tensor parallelism: a part of this rank's cut), so nothing is gathered.
  // The part has one dimension. At stages 1 to 3 it has the elements [start, start + n) of the
  // flattened parameter, with `start` as in ModelState(), and n = 0 if this rank holds none. At
  // stage 0, and for frozen parameters that every rank holds, it has all elements. Results are
  // copies in fp32 (fp64 for a parameter in fp64). Set* take n elements of any shape and dtype; if
  // every rank holds the whole parameter, all ranks must pass the same values. Only
  // SetLocalFp32Parameter is collective, because it also updates the model's weights: every rank
  // calls it with its own part.
  at::Tensor GetLocalFp32Parameter(const at::Tensor& parameter) const;
  void SetLocalFp32Parameter(const at::Tensor& parameter, const at::Tensor& value);
  at::Tensor GetLocalGradient(const at::Tensor& parameter) const;
  void SetLocalGradient(const at::Tensor& parameter, const at::Tensor& value);
  at::Tensor GetLocalOptimizerState(const at::Tensor& parameter, const std::string& key) const;
  void SetLocalOptimizerState(const at::Tensor& parameter, const at::Tensor& value,
                              const std::string& key);

  // The next three functions return the parts that this rank holds of the tensors that training
  // changes (in a pipeline: the tensors of its stage). The tensors are not copies: writing to them
  // changes the run. If ranks train independently (LocalSGD, DiLoCo, 0/1 Adam), ModelState and
  // OptimizerState are valid on rank 0.
  //
  // Returns weights (fp32 master weights if there are any) and buffers, named by module path.
  std::vector<TensorPart> ModelState() const;
  // Returns the optimizer's state, with names "optimizer/<kind>/<parameter>".
  std::vector<TensorPart> OptimizerState() const;
  // Returns compression errors, outer optimizers, and, if ranks train independently, each rank's
  // weights and optimizer state. Names begin with "rank_state/". A tensor that differs by rank has
  // the number of ranks as its first dimension.
  std::vector<TensorPart> RankState() const;

  // Copies the tensors of ModelState() to the model's weights. Call it on every rank after those
  // tensors were overwritten.
  void WeightsChanged();

 protected:
  using EngineReadings::EngineReadings;
};

// Implements the part of the engine that does not depend on the model's type: training and
// checkpoints. Inherits the members of EngineTensors and EngineReadings. Not thread-safe: use it
// from one thread. Throws TrainError for errors that the user can correct, and c10::Error
// otherwise.
class EngineCore : public EngineTensors {
 public:
  // Trains the parameters of `module` that require a gradient. Casts parameters and buffers to the
  // dtypes of the configuration and copies rank 0's values to all ranks. Collective: every rank
  // must call it. Throws on every rank if the ranks' models differ, naming a parameter and a rank,
  // and if another engine holds a parameter. `module` and `group` must outlive this object. At ZeRO
  // stage 3 the parameters' values are lost with this object.
  EngineCore(const EngineConfig& config, torch::nn::Module& module, const ProcessGroup& group,
             InitRecording* deferred = nullptr);
  // Trains a model that is cut over `ranks`; `module` holds this rank's part. With
  // Passes::kBatches, which is for a stage of a pipeline, use the object through an EngineBatch
  // (trainer/engine/engine_batch.h). Throws on every rank if the configurations of the ranks
  // differ, if the models of replicas differ, or if the parts of a model do not fit together; the
  // message names the ranks and their values.
  EngineCore(const EngineConfig& config, torch::nn::Module& module,
             std::shared_ptr<const MeshGroups> ranks, Passes passes,
             InitRecording* deferred = nullptr);
  // Trains `module` like the first constructor. `config` is the path of a DeepSpeed configuration,
  // or JSON text that begins with '{'.
  EngineCore(const std::string& config, torch::nn::Module& module, const ProcessGroup& group,
             const InitializeOptions& options);
  EngineCore(EngineCore&&) noexcept = default;

  // Returns the autocast scope for the forward pass and the loss. Keep the scope alive while they
  // run.
  AutocastScope Autocast() const;
  // Casts a floating-point input to the model's dtype if that is a 16-bit type; returns any other
  // input unchanged.
  at::Tensor ToModelDtype(const at::Tensor& input) const;

  // Begins a forward pass of the model. In evaluation mode or without gradients, BeforeForward and
  // AfterForward do not affect the training pass. Such a forward pass may therefore run anywhere,
  // even inside another forward pass, or between a forward pass and its Backward. At ZeRO stage 3,
  // forward and backward passes must run on the thread that constructed this object. Throws if a
  // parameter that was frozen at construction requires a gradient now.
  void BeforeForward();
  // Ends the forward pass that BeforeForward began. `outputs` are tensors that the forward pass
  // returned; may be empty.
  void AfterForward(const std::vector<at::Tensor>& outputs);
  // Ends a forward pass that threw, in place of AfterForward, if the exception is caught. Gradients
  // of earlier micro-batches are kept; the micro-batch may be skipped or repeated. Throws
  // TrainError in place of LibTorch's exception if a parameter was not gathered (ZeRO stage 3).
  void AbandonForward();
  // Returns whether the configuration's activation_checkpointing.number_checkpoints applies to the
  // next forward pass. If so, call ForwardRecomputed instead of the model's forward.
  bool recomputes() const;
  // Runs the model's forward, and keeps only the inputs of number_checkpoints parts of the model,
  // each consisting of consecutive layers (see Recompute). The layers are those of a
  // torch::nn::Sequential, or Model::Layers(); for any other model the constructor throws.
  at::Tensor ForwardRecomputed(const at::Tensor& input) const;

  // Computes the gradients of loss / gradient_accumulation_steps. On the last micro-batch of a step
  // the gradients are averaged over the ranks. Throws if the loss is not a scalar or depends on no
  // trained parameter, in evaluation mode, without a preceding forward pass through the engine, and
  // if called twice without Step. If the backward pass itself throws (out of memory, for example),
  // the gradients of this step are dropped and the step starts over: the next micro-batch is its
  // first. A program may catch the exception and continue if all ranks threw in the same
  // micro-batch. At ZeRO stages 0 and 1 it may also continue if only one rank threw, in a
  // micro-batch that is not the last of its step. With tensor parallelism the rank must exit,
  // because the other ranks of its group wait for its exchanges, so the next pass of the engine
  // throws.
  void Backward(const at::Tensor& loss, const BackwardOptions& options = {});

  // Returns a scope that delays the exchange of gradients, like DistributedDataParallel's no_sync.
  // Forward passes in the scope, and their backward passes, are not micro-batches of their own.
  // Their gradients are summed on this rank, and averaged over the ranks together with the
  // gradients of the next pass outside the scope. Step throws within the scope. (At ZeRO stages 2
  // and 3 each backward pass still exchanges gradients, because no rank has room for all
  // gradients.) Throws in a pipeline.
  NoSyncScope NoSync();

  // Drops the gradients of this step so far, like DeepSpeed's zero_grad; the count of micro-batches
  // does not change. A Backward that was not followed by Step is not counted. Not collective.
  void ZeroGrad();

  // Ends a micro-batch. On the last micro-batch of a step it clips the gradients, updates the
  // weights, clears the gradients and returns true; otherwise it returns false. Throws without a
  // preceding Backward. Throws, naming the parameter, if a parameter got no gradient and
  // zero_optimization.ignore_unused_parameters is false. Throws if gradients are not finite in fp32
  // or at the minimum loss scale; the message names the step, the parameter and, if a loss was not
  // finite, the rank. After an exception the step's gradients are dropped, and the step starts
  // over.
  bool Step();

  void SetTrain(bool on);

  // Sets all learning rates to `lr` until they are set again. Every rank must set the same values.
  // Rates that were set are stored in a checkpoint with the optimizer's state; otherwise
  // LoadCheckpoint keeps the rates of the configuration. Throws if the configuration has a
  // scheduler, because a scheduler sets the rates in each step, and for a value that is negative or
  // not finite.
  void SetLearningRate(double lr);
  // Sets each learning rate to its own value, in the order of GetLearningRates(), like
  // SetLearningRate.
  void SetLearningRates(const std::vector<double>& lrs);

  // Returns the object for recipes with parallel.staleness (trainer/parallel/stale_training.h);
  // null for other recipes.
  StaleTraining* stale_training();

  // Passes a step's gradient norm to the engine. On a GPU without host synchronization the engine
  // cannot check whether the gradient was finite. The caller therefore reads grad_norm_on_device()
  // and passes each value here, once per step, in order, and before a checkpoint is saved. Returns
  // the reason if the step was skipped, in the format of skip_reason(); empty otherwise.
  std::string ObserveGradNorm(double norm);

  // Prepares a step that is recorded or replayed ("cuda_graph"). Call it before every step.
  void PrepareStep();
  // Counts a step that was replayed. Call it after a replay, in place of Forward, Backward and
  // Step. `grad_norm` is the tensor that grad_norm_on_device() returned in the recording.
  void StepReplayed(const at::Tensor& grad_norm);

  // Calls `action` once, before the next update changes weights and optimizer state. A caller that
  // copies weights and state on a device in parallel to the passes can wait for its copies in
  // `action`. Not for replayed steps.
  void BeforeNextUpdate(std::function<void()> action);

  // Restores the position of the run and, like WeightsChanged, copies the tensors of ModelState(),
  // which must have been overwritten before, to the model's weights. Drops a partly accumulated
  // step, because its gradients were computed for other weights. `without` has the names in
  // RankState() that were not overwritten; these tensors start again from rank 0's weights.
  // Collective.
  void Resume(const EngineProgress& progress, const std::set<std::string>& without = {});

  // Saves the checkpoint `dir`/`tag`, of which every rank writes its part. Collective. An existing
  // checkpoint with that tag is replaced atomically: a kill at any time leaves the old checkpoint
  // or the new one. The default tag is "global_step<N>". Afterwards the file `dir`/latest names the
  // checkpoint. `dir` must be shared by all nodes. The tag of rank 0 is used. If ranks pass
  // different tags, the configuration's checkpoint.tag_validation selects whether this is ignored,
  // a warning or an error. If one rank fails, every rank throws and the message names it.
  void SaveCheckpoint(const std::string& dir, const std::string& tag = "",
                      const ClientState& client_state = {}) const;
  // Loads a checkpoint of any number of ranks, ZeRO stage and precision. Collective. Without a tag
  // it loads the checkpoint that `latest` names, or the newest intact checkpoint if that one is
  // damaged. `dir` may also be a folder of DeepSpeed's or PyTorch's checkpoints
  // (docs/checkpoints.md). Returns nullopt if `dir` has no checkpoint. The default CPU generator of
  // each rank is restored if the number of ranks is the same, and unchanged otherwise. Throws on
  // every rank if the tag does not exist, if no checkpoint is intact, or if the checkpoint belongs
  // to another model or optimizer; in the last case the state is partly loaded. A partly
  // accumulated step of this run is dropped with its gradients.
  std::optional<LoadedCheckpoint> LoadCheckpoint(const std::string& dir,
                                                 const std::string& tag = "",
                                                 const LoadCheckpointOptions& options = {});

 private:
  friend class EngineBatch;
  friend class GatheredParameters;
  friend class NoSyncScope;
  friend class SavedWeights;
};

// Delays the exchange of gradients; see EngineCore::NoSync. Scopes may be nested. Use it only on
// the engine's thread.
class [[nodiscard]] NoSyncScope {
 public:
  explicit NoSyncScope(EngineCore& core);
  ~NoSyncScope();
  NoSyncScope(const NoSyncScope&) = delete;
  NoSyncScope& operator=(const NoSyncScope&) = delete;

 private:
  std::weak_ptr<EngineParts> engine_;
};

// Gathers parameters of an engine's model for the lifetime of this object and makes them writable.
// With tensor parallelism it gathers only this rank's cuts; EngineTensors gives access to whole
// parameters. At ZeRO stage 3 each rank holds only its shard, so reading a parameter outside of the
// forward and backward pass throws, and so does torch::save of the model. At the other stages
// parameters are always complete. Collective: every rank (in a pipeline: every rank of the stage)
// must construct and destroy it with the same parameters, before the engine is destroyed.
class GatheredParameters {
 public:
  // Gathers `parameters`. Rank `modifier_rank` may change the values; the destructor sends them to
  // all ranks and updates the master weights. Without `modifier_rank`, changes are lost or differ
  // between ranks. In a pipeline, `modifier_rank` is a rank of this stage's replicas, and tied
  // weights must be changed identically in all stages that share them. With tensor parallelism it
  // is a rank among the ranks with the same cuts, and whole parameters must be changed identically
  // on all ranks of tensor_group.
  GatheredParameters(EngineCore& core, std::vector<at::Tensor> parameters,
                     std::optional<int> modifier_rank = {});
  ~GatheredParameters() noexcept(false);
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;

 private:
  std::weak_ptr<EngineParts> engine_;
  std::vector<at::Tensor> parameters_;
  std::optional<int> modifier_rank_;
};

// Gives every rank, for the lifetime of the object, the model that SaveCheckpoint would save now:
// rank 0's weights and buffers, if the ranks' tensors differ. They differ for LocalSGD, DiLoCo and
// 0/1 Adam between two exchanges, with "broadcast_buffers": false, and for buffers that several
// stages of a pipeline share. An evaluation whose samples are divided among the ranks needs such an
// object; otherwise each rank evaluates another model. `dslaunch train` and
// PipelineEngine::EvalBatch create it themselves. Takes memory for a copy of the differing tensors.
//
// Collective: every rank constructs the object between two steps, and destroys it before the next
// training pass. The destructor restores the rank's own weights and buffers. It neither throws nor
// communicates with other ranks.
class SavedWeights {
 public:
  explicit SavedWeights(EngineCore& core);
  ~SavedWeights();
  SavedWeights(const SavedWeights&) = delete;
  SavedWeights& operator=(const SavedWeights&) = delete;

 private:
  std::weak_ptr<EngineParts> engine_;
  std::vector<at::Tensor> differ_;  // tensors of the model whose values differ between ranks
  // Values of `differ_` on this rank; empty if they equal the saved values.
  std::vector<at::Tensor> own_;
};

struct NamedForward {
  void forward();
};
// Detects a member `forward` of M: the name is then ambiguous in this class, so the expression in
// HasForward is invalid.
template <class M>
struct ForwardTwice : M, NamedForward {};

// True if M has a member named forward: a function, several overloads, or a template.
template <class M>
concept HasForward = std::is_final_v<M> || !requires {
  &ForwardTwice<M>::forward;
};

// True if M::forward can be called with arguments of types Args.
template <class M, class... Args>
concept ForwardTakes = requires(M& model, Args&&... args) {
  model.forward(std::forward<Args>(args)...);
};

// Trains a model of type M, which is any torch::nn::Module. Forward takes the arguments of
// M::forward and returns its result; floating-point tensor arguments are cast to the model's dtype
// if that is a 16-bit type. The engine shares ownership of the model.
template <class M>
class Engine {
 public:
  static_assert(std::is_base_of_v<torch::nn::Module, M>,
                "dslaunch: the model's class must be derived from torch::nn::Module");
  static_assert(HasForward<M>,
                "dslaunch: the model's class has no member function forward, which Engine::Forward "
                "calls; for example: at::Tensor forward(at::Tensor input)");

  Engine(EngineCore core, std::shared_ptr<M> model, LossFunction loss)
      : model_(std::move(model)), loss_(std::move(loss)), core_(std::move(core)) {}

  template <class... Args>
  auto Forward(Args&&... args) {
    static_assert(ForwardTakes<M, decltype(Input(std::declval<Args>()))...>,
                  "dslaunch: the model's forward does not take these arguments, or is not public");
    const AutocastScope autocast = core_.Autocast();
    core_.BeforeForward();
    try {
      auto output = Run(Input(std::forward<Args>(args))...);
      if constexpr (std::is_same_v<decltype(output), at::Tensor>) {
        core_.AfterForward({output});
      } else {
        core_.AfterForward({});
      }
      return output;
    } catch (...) {
      core_.AbandonForward();
      throw;
    }
  }
  at::Tensor Loss(const at::Tensor& output, const at::Tensor& target) const {
    const AutocastScope autocast = core_.Autocast();
    return loss_(output, target);
  }
  void Backward(const at::Tensor& loss, const BackwardOptions& options = {}) {
    core_.Backward(loss, options);
  }
  NoSyncScope NoSync() { return core_.NoSync(); }
  void ZeroGrad() { core_.ZeroGrad(); }
  bool Step() { return core_.Step(); }

  // Saves a checkpoint (EngineCore::SaveCheckpoint).
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
  std::vector<double> GetLearningRates() const { return core_.GetLearningRates(); }
  void SetLearningRate(double lr) { core_.SetLearningRate(lr); }
  double loss_scale() const { return core_.loss_scale(); }

  const M& model() const { return *model_; }
  const EngineCore& core() const { return core_; }
  EngineCore& core() { return core_; }

 private:
  template <class... Args>
  auto Run(Args&&... args) {
    using Output = decltype(model_->forward(std::forward<Args>(args)...));
    if constexpr (std::is_same_v<Output, at::Tensor> && sizeof...(Args) == 1 &&
                  (std::is_same_v<std::remove_cvref_t<Args>, at::Tensor> && ...)) {
      if (core_.recomputes()) return core_.ForwardRecomputed(args...);
    }
    return model_->forward(std::forward<Args>(args)...);
  }

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

// Creates an engine for `model`. See the constructors of EngineCore for `config`. Collective.
// `group` must outlive the engine. Dropout draws from each rank's default generator: ranks with the
// same seed drop the same units, unless you call at::manual_seed(seed + group.rank()) afterwards.
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
