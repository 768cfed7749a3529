// A model that is cut into stages, each on ranks of its own (GPipe, Huang et al. 2019).
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

// What goes from one layer to the next: any number of tensors of any dtype. Of those that hold
// integers or booleans, and of those that need none, no gradient comes back.
using Tensors = std::vector<at::Tensor>;

// A layer that is not built yet: it is where its stage is, and nowhere else.
struct PipelineLayer {
  std::string type;     // "torch::nn::LinearImpl": what partition type:REGEX looks at
  std::string tie_key;  // layers with the same key are one module; empty: this layer's own
  // Null: a function without parameters.
  std::function<std::shared_ptr<torch::nn::Module>()> build;
  // `module` is what `build` gave, or null. Must return at least one tensor, all of them defined.
  std::function<Tensors(torch::nn::Module* module, const Tensors& inputs)> forward;
  bool forwards_module = true;  // whether that is the module's own forward
};

namespace pipeline_detail {

std::string TypeName(const std::type_info& type);  // as it is written in C++

// M itself, or what a module holder (torch::nn::Linear) holds.
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
// Whether `forward` takes so many tensors.
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
// A layer's forward takes a tensor for each of the last layer's outputs, or all of them as Tensors,
// and returns a tensor, a tuple of these, or Tensors.
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

// M is a module, or a holder of one, that is made from `arguments`, which are copied.
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

// The same, of layers whose parameters are the same: an embedding, and the head that reads it. All
// layers of a `key` must be made of the same arguments. The gradients of all add up.
template <class M, class... Args>
PipelineLayer TiedLayerSpec(std::string key, Args... arguments) {
  PipelineLayer layer = LayerSpec<M>(std::move(arguments)...);
  layer.tie_key = std::move(key);
  return layer;
}

// With a function of its own in the place of M's forward: (M& module, const at::Tensor& input ...).
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

// A function of the outputs of the layer before, without parameters.
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

// A scalar of the last layer's outputs and the micro-batch's targets.
using PipelineLoss = std::function<at::Tensor(const Tensors& outputs, const Tensors& targets)>;

struct PipelineModule {
  std::vector<PipelineLayer> layers;
  int num_stages = 0;  // 0: the configuration's pipeline.stages
  // "uniform", "parameters", "type:REGEX" or "profile"; empty: the configuration's
  // pipeline.partition.
  std::string partition = {};
  PipelineLoss loss = {};                       // null: CrossEntropy of the first output and target
  int64_t activation_checkpoint_interval = -1;  // layers; 0: none; -1: the configuration's
  // For partition "profile": the first layer's inputs for one micro-batch.
  Tensors sample = {};
};

// What one forward pass of a pipeline takes.
struct MicroBatch {
  Tensors inputs = {};   // of the first layer. Read on ranks of the first stage only
  Tensors targets = {};  // of the loss. Read on ranks of the last stage only
};

// Gives the micro-batches of this rank's replica, one for each call. It is called on ranks of the
// first and the last stage, in the same order on both.
using MicroBatchSource = std::function<MicroBatch()>;

// One thread. Every rank must make the same calls. Errors are those of EngineCore.
class PipelineEngine {
 public:
  PipelineEngine(const EngineConfig& config, const PipelineModule& module,
                 const ProcessGroup& group);
  ~PipelineEngine();
  PipelineEngine(PipelineEngine&&) noexcept;

  // One optimizer step of accumulation_steps() micro-batches. The mean of their losses, over all
  // replicas; the same on all ranks. Micro-batches may differ in shape.
  double TrainBatch(const MicroBatchSource& next);

  // The same without gradients and in evaluation mode, which it leaves as it was.
  double EvalBatch(const MicroBatchSource& next, int64_t micro_batches);

  // The last layer's outputs for these inputs, without gradients, on all ranks of this replica.
  // `inputs` counts on the first stage. In the mode that was last set.
  Tensors Infer(const Tensors& inputs);

  void SetTrain(bool on);

  bool is_first_stage() const;
  bool is_last_stage() const;
  int stage() const;
  int num_stages() const;
  // This rank's place among those that train the same stage, and how many there are.
  int replica() const;
  int num_replicas() const;
  const ProcessGroup& replicas() const;  // these

  // Of this rank: only its own stage's parameters, under the names that they have in the whole.
  const torch::nn::Module& module() const;
  const EngineCore& core() const;  // steps, learning rate, norm, memory, checkpoints
  EngineCore& core();

  void SaveCheckpoint(const std::string& dir, const std::string& tag = "",
                      const ClientState& client_state = {}) const;
  std::optional<LoadedCheckpoint> LoadCheckpoint(const std::string& dir,
                                                 const std::string& tag = "",
                                                 const LoadCheckpointOptions& options = {});

 private:
  friend PipelineEngine MakePipelineEngine(StageParts parts, PipelineLoss loss,
                                           const EngineConfig& config, const ProcessGroup& group);
  class Impl;
  explicit PipelineEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// `config` is what EngineCore's constructor takes.
PipelineEngine InitializePipeline(const std::string& config, const PipelineModule& module,
                                  const ProcessGroup& group, const InitializeOptions& options = {});

}  // namespace dslaunch
