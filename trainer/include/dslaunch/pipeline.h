// Trains a model that is divided into stages, each on different ranks (GPipe, Huang et al. 2019).
//
//   dslaunch::ProcessGroup group = dslaunch::InitProcessGroup();
//   auto engine = dslaunch::InitializePipeline(
//       "ds_config.json",
//       {.layers = {dslaunch::LayerSpec<torch::nn::Linear>(784, 128),
//                   dslaunch::LayerFunction([](const at::Tensor& x) { return at::relu(x); }),
//                   dslaunch::LayerSpec<torch::nn::Linear>(128, 10)},
//        .num_stages = 2},
//       group);
//   while (...) engine.TrainBatch([&] { return NextMicroBatch(); });
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

struct StageParts;

// The tensors that one layer passes to the next, of any number and any dtypes. Integer and boolean
// tensors, and tensors that do not require a gradient, get no gradient.
using Tensors = std::vector<at::Tensor>;

// Describes a layer. Only the ranks of its stage build it.
struct PipelineLayer {
  // Name of the type, which partition type:REGEX is matched with, such as "torch::nn::LinearImpl".
  std::string type;
  std::string tie_key;  // layers with the same key share one module; empty if not shared
  // Creates the layer's module; null if the layer is a function without parameters.
  std::function<std::shared_ptr<torch::nn::Module>()> build;
  // Computes the layer's outputs: at least one tensor, all defined. `module` is the result of
  // `build`, or null.
  std::function<Tensors(torch::nn::Module* module, const Tensors& inputs)> forward;
  bool forwards_module = true;  // false if `forward` does not call the module's forward
};

namespace pipeline_detail {

// Returns the type's name as written in C++.
std::string TypeName(const std::type_info& type);

// Defines Type as M itself, or as the module in M if M is a module holder (torch::nn::Linear).
template <class M>
struct ModuleOf {
  using Type = M;
};
template <class M>
requires requires { typename M::ContainedType; }
struct ModuleOf<M> {
  using Type = typename M::ContainedType;
};

[[noreturn]] void FailInputs(const std::string& layer, size_t taken, size_t given);

inline Tensors ToTensors(at::Tensor output) { return {std::move(output)}; }
inline Tensors ToTensors(Tensors outputs) { return outputs; }
template <class... T>
Tensors ToTensors(const std::tuple<T...>& outputs) {
  return std::apply([](const auto&... output) { return Tensors{output...}; }, outputs);
}

template <class F, size_t... i>
Tensors CallWith(F& forward, const Tensors& inputs, std::index_sequence<i...>) {
  return ToTensors(forward(inputs[i]...));
}
// Returns whether `F` can be called with one tensor for each index in `i`.
template <class F, size_t... i>
constexpr bool Takes(std::index_sequence<i...>) {
  return std::is_invocable_v<F&, decltype((void(i), std::declval<const at::Tensor&>()))...>;
}
template <class F, size_t n = 1>
Tensors CallFrom(F& forward, const Tensors& inputs, const std::string& layer) {
  static_assert(n <= 8, "a layer takes one to eight tensors, or all as dslaunch::Tensors");
  if constexpr (!Takes<F>(std::make_index_sequence<n>())) {
    return CallFrom<F, n + 1>(forward, inputs, layer);
  } else {
    if (inputs.size() != n) FailInputs(layer, n, inputs.size());
    return CallWith(forward, inputs, std::make_index_sequence<n>());
  }
}
// Calls a layer's `forward`, which takes one tensor for each output of the previous layer, or all
// outputs as Tensors, and returns a tensor, a tuple of tensors, or Tensors.
template <class F>
Tensors Call(F&& forward, const Tensors& inputs, const std::string& layer) {
  if constexpr (std::is_invocable_v<F&, const Tensors&> &&
                !std::is_invocable_v<F&, const at::Tensor&>) {
    return ToTensors(forward(inputs));
  } else {
    return CallFrom(forward, inputs, layer);
  }
}

}  // namespace pipeline_detail

// Returns a layer that is the module M, or the module in the holder M (torch::nn::Linear),
// constructed from copies of `arguments`.
template <class M, class... Args>
PipelineLayer LayerSpec(Args... arguments) {
  using Module = typename pipeline_detail::ModuleOf<M>::Type;
  PipelineLayer layer;
  layer.type = pipeline_detail::TypeName(typeid(Module));
  layer.build = [arguments...]() -> std::shared_ptr<torch::nn::Module> {
    return std::make_shared<Module>(arguments...);
  };
  layer.forward = [type = layer.type](torch::nn::Module* module, const Tensors& inputs) {
    auto forward =
        [&](const auto&... input) -> decltype(std::declval<Module&>().forward(input...)) {
      return static_cast<Module*>(module)->forward(input...);
    };
    return pipeline_detail::Call(forward, inputs, type);
  };
  return layer;
}

// Returns a layer that shares its parameters with all layers of the same `key`, for example an
// embedding and the output head. All layers of a key must have the same type and arguments. The
// gradients of these layers are summed.
template <class M, class... Args>
PipelineLayer TiedLayerSpec(std::string key, Args... arguments) {
  PipelineLayer layer = LayerSpec<M>(std::move(arguments)...);
  layer.tie_key = std::move(key);
  return layer;
}

// Returns a layer like TiedLayerSpec that calls `forward(M& module, const at::Tensor& input ...)`
// instead of M's forward.
template <class M, class F, class... Args>
PipelineLayer TiedLayerSpecWith(std::string key, F forward, Args... arguments) {
  using Module = typename pipeline_detail::ModuleOf<M>::Type;
  PipelineLayer layer = TiedLayerSpec<M>(std::move(key), std::move(arguments)...);
  layer.forwards_module = false;
  layer.forward = [forward = std::move(forward), type = layer.type](torch::nn::Module* module,
                                                                    const Tensors& inputs) {
    auto call = [&](const auto&... input) -> decltype(forward(std::declval<Module&>(), input...)) {
      return forward(*static_cast<Module*>(module), input...);
    };
    return pipeline_detail::Call(call, inputs, type);
  };
  return layer;
}

// Returns a layer without parameters: a function of the previous layer's outputs.
template <class F>
PipelineLayer LayerFunction(F forward) {
  PipelineLayer layer;
  layer.type = "function";
  layer.forwards_module = false;
  layer.forward = [forward = std::move(forward)](torch::nn::Module*,
                                                 const Tensors& inputs) mutable {
    return pipeline_detail::Call(forward, inputs, "function");
  };
  return layer;
}

// Computes the loss of a micro-batch as a scalar tensor, from the last layer's outputs and the
// targets.
using PipelineLoss = std::function<at::Tensor(const Tensors& outputs, const Tensors& targets)>;

struct PipelineModule {
  std::vector<PipelineLayer> layers;
  int num_stages = 0;  // number of stages; 0 to use the configuration's pipeline.stages
  // How layers are divided into stages: "uniform", "parameters", "type:REGEX" or "profile"; empty
  // to use the configuration's pipeline.partition.
  std::string partition = {};
  PipelineLoss loss = {};  // null to use CrossEntropy of the first output and the first target
  // Number of layers between two activation checkpoints; 0 disables them, -1 uses the
  // configuration's value.
  int64_t activation_checkpoint_interval = -1;
  // Inputs of the first layer for one micro-batch. Used only by partition "profile".
  Tensors sample = {};
};

// Data of one forward pass of a pipeline.
struct MicroBatch {
  Tensors inputs = {};   // inputs of the first layer; read only on the first stage
  Tensors targets = {};  // targets of the loss; read only on the last stage
};

// Returns the next micro-batch of this rank's replica. Called once per micro-batch on ranks of the
// first and the last stage, in the same order on both.
using MicroBatchSource = std::function<MicroBatch()>;

// Trains a pipeline. Not thread-safe: use it from one thread. Every rank must make the same calls
// in the same order. Throws the exceptions of EngineCore.
class PipelineEngine {
 public:
  PipelineEngine(const EngineConfig& config, const PipelineModule& module,
                 const ProcessGroup& group);
  ~PipelineEngine();
  PipelineEngine(PipelineEngine&&) noexcept;

  // Runs one optimizer step of accumulation_steps() micro-batches. Returns the mean loss over all
  // micro-batches and replicas, the same value on all ranks. Micro-batches may differ in shape.
  double TrainBatch(const MicroBatchSource& next);

  // Returns the mean loss of `micro_batches` micro-batches, in evaluation mode and without
  // gradients. Afterwards the module is in its previous mode.
  double EvalBatch(const MicroBatchSource& next, int64_t micro_batches);

  // Returns the last layer's outputs for `inputs`, without gradients, on all ranks of this replica.
  // Only the first stage reads `inputs`. Runs in the mode of the last SetTrain.
  Tensors Infer(const Tensors& inputs);

  void SetTrain(bool on);

  bool is_first_stage() const;
  bool is_last_stage() const;
  int stage() const;
  int num_stages() const;
  int replica() const;       // returns this rank's index among the replicas of its stage
  int num_replicas() const;  // returns the number of replicas of each stage
  const ProcessGroup& replicas() const;  // returns the group of the ranks that train this stage

  // Returns the module of this rank's stage, whose parameters have their names in the whole model.
  const torch::nn::Module& module() const;
  const EngineCore& core() const;  // gives access to steps, rates, norms, memory and checkpoints
  EngineCore& core();

  void SaveCheckpoint(const std::string& dir, const std::string& tag = "",
                      const ClientState& client_state = {}) const;
  std::optional<LoadedCheckpoint> LoadCheckpoint(const std::string& dir,
                                                 const std::string& tag = "",
                                                 const LoadCheckpointOptions& options = {});

 private:
  friend PipelineEngine MakePipelineEngine(StageParts parts, PipelineLoss loss,
                                           const EngineConfig& config,
                                           std::shared_ptr<MeshGroups> ranks);
  class Impl;
  explicit PipelineEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Creates a pipeline engine. See the constructors of EngineCore for `config`. Collective. `group`
// must outlive the engine.
PipelineEngine InitializePipeline(const std::string& config, const PipelineModule& module,
                                  const ProcessGroup& group, const InitializeOptions& options = {});

}  // namespace dslaunch
