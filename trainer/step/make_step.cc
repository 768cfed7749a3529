#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "dslaunch/deferred_init.h"
#include "trainer/base/train_error.h"
#include "trainer/nn/module_dtype.h"
#include "trainer/optim/torch_optimizer.h"
#include "trainer/parallel/ddp/make_grad_sync.h"
#include "trainer/parallel/ddp/replicated_states.h"
#include "trainer/parallel/exchange/optimizer_exchange.h"
#include "trainer/parallel/exchange/outer_step.h"
#include "trainer/parallel/exchange/own_grad_sync.h"
#include "trainer/parallel/exchange/power_sgd.h"
#include "trainer/parallel/exchange/sign_mean.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"
#include "trainer/parallel/server/server_states.h"
#include "trainer/parallel/sync_options.h"
#include "trainer/parallel/zero/sharded_states.h"
#include "trainer/step/step_kinds.h"

namespace dslaunch {
namespace {

// Gives memory on `device` and their values to the deferred tensors of `module`.
void Materialize(torch::nn::Module& module, InitRecording& deferred, c10::Device device) {
  std::vector<at::Tensor> tensors = TensorsOf(Unique(module.named_parameters()));
  for (const NamedTensor& item : Unique(module.named_buffers())) tensors.push_back(item.tensor);
  deferred.Replay(tensors, [&](size_t index, const at::Tensor& values) {
    tensors[index].set_data(values.detach().to(device));
  });
}

// Moves and casts the module. Returns the recording that ShardedStates must materialize, or null.
// With ZeRO a recording is not materialized here, because all parameters may not fit into memory at
// the same time. In fp32 they also take more memory than the parts that a rank keeps.
InitRecording* PrepareModule(const StepInputs& inputs) {
  const EngineConfig& config = inputs.config;
  const c10::Device device = inputs.ranks.world().device();
  if (inputs.deferred != nullptr && config.zero.stage > 0) return inputs.deferred;
  if (inputs.deferred != nullptr) {
    Materialize(inputs.module, *inputs.deferred, device);
  } else if (!device.is_cpu() && config.zero.stage < 3) {
    inputs.module.to(device);
  }
  CastModule(inputs.module, config.precision.model, config.precision.batch_norm_float32);
  return nullptr;
}

// Copies the first rank's values of whole parameters and buffers to all ranks of the tensor axis.
// Recorded tensors get the same values on all ranks anyway, so they are skipped.
void ShareWholeTensors(const StepInputs& inputs) {
  const ProcessGroup* const tensor = inputs.ranks.tensor();
  if (tensor == nullptr || inputs.deferred != nullptr) return;
  std::vector<at::Tensor> whole;
  for (const NamedTensor& item : Unique(inputs.module.named_parameters())) {
    if (!inputs.ranks.cut().divided.contains(item.name)) whole.push_back(item.tensor);
  }
  if (inputs.config.broadcast_buffers) {
    for (const NamedTensor& item : Unique(inputs.module.named_buffers())) {
      whole.push_back(item.tensor);
    }
  }
  BroadcastFromRank0(*tensor, whole);
}

const OptimizerConfig& OptimizerOf(const EngineConfig& config) {
  if (!config.optimizer) {
    RefuseInput(
        "the configuration has no \"optimizer\" and the program sets none; add for example "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}, or set "
        "InitializeOptions::optimizer or make_optimizer");
  }
  return *config.optimizer;
}

// Returns a function that sums values over the parts into which ZeRO divides parameters; null if
// parameters are not divided.
SumOverRanks SumOfShards(const ModelStates& states, const MeshGroups& ranks) {
  if (!states.sharded()) return nullptr;
  if (ranks.tied().empty()) {
    return [group = &ranks.data()](at::Tensor& tensor) { group->AllReduce(tensor); };
  }
  // The copies of tied weights are at different positions among the parameters of each stage, so a
  // reduction could give them different bits. The values are therefore added in the order of the
  // ranks.
  return [group = &ranks.data()](at::Tensor& tensor) {
    const at::Tensor all = group->AllGather(tensor);
    tensor.copy_(all[0]);
    for (int64_t i = 1; i < all.size(0); ++i) tensor.add_(all[i]);
  };
}

// Returns a function that sums values like SumOfShards, and also over the tensor axis for
// parameters that are divided there. Returns null if every rank has whole parameters.
SumOverRanks SumOfParts(const ModelStates& states, const MeshGroups& ranks,
                        const std::vector<NamedTensor>& parameters) {
  SumOverRanks over_shards = SumOfShards(states, ranks);
  std::vector<int64_t> divided;  // indices of the parameters that are divided over the tensor axis
  // Factor of each divided parameter: 0 if this rank's part is a copy, else 1.
  std::vector<double> counts;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto cut = ranks.cut().divided.find(parameters[i].name);
    if (cut == ranks.cut().divided.end()) continue;
    divided.push_back(static_cast<int64_t>(i));
    counts.push_back(cut->second.is_copy ? 0 : 1);
  }
  if (divided.empty()) return over_shards;
  return [over_shards, group = ranks.tensor(), columns = at::tensor(divided, at::kLong),
          counts = at::tensor(counts, at::kDouble)](at::Tensor& values) {
    if (over_shards) over_shards(values);
    at::Tensor sums = values.index_select(1, columns) * counts.to(values.options());
    group->AllReduce(sums);
    values.index_copy_(1, columns, sums);
  };
}

// Returns the mean for the optimizer; null if the optimizer does not compress exchanges.
std::shared_ptr<CompressedMean> CompressedMeanOf(const EngineConfig& config,
                                                 const MeshGroups& ranks) {
  if (!config.optimizer || !config.optimizer->CompressesExchanges()) return nullptr;
  return std::make_shared<SignMean>(ranks.data());
}

std::unique_ptr<Optimizer> OptimizerFor(const StepInputs& inputs, const ModelStates& states,
                                        const std::vector<NamedTensor>& parameters) {
  const EngineConfig& config = inputs.config;
  if (inputs.make_optimizer) {
    const bool has_whole = !states.sharded() && inputs.ranks.cut().divided.empty();
    return WrapTorchOptimizer(inputs.make_optimizer, parameters, states.parts(),
                              has_whole || config.allow_untested_optimizer);
  }
  // Groups of the optimizer may name frozen parameters, although this rank does not update them.
  std::vector<ParameterInfo> elsewhere = inputs.elsewhere;
  for (const NamedTensor& item : FrozenParameters(inputs.module))
    elsewhere.push_back({item.name, item.tensor.dim()});
  return MakeOptimizer(OptimizerOf(config), config.scheduler.schedule, parameters, states.parts(),
                       SumOfParts(states, inputs.ranks, parameters), elsewhere,
                       CompressedMeanOf(config, inputs.ranks), states.StateZeros());
}

StepParts PartsOf(const StepInputs& inputs, std::unique_ptr<ModelStates> states) {
  std::vector<NamedTensor> parameters = TrainableParameters(inputs.module);
  std::unique_ptr<Optimizer> optimizer = OptimizerFor(inputs, *states, parameters);
  return {.config = inputs.config,
          .ranks = inputs.ranks,
          .parameters = std::move(parameters),
          .states = std::move(states),
          .optimizer = std::move(optimizer),
          .exchange = nullptr};
}

std::unique_ptr<GradientExchange> MakeExchange(const EngineConfig& config,
                                               const ProcessGroup& group, const StepParts& parts,
                                               std::vector<at::Tensor> buffers,
                                               const GradSyncOptions& options) {
  const ParallelConfig& parallel = config.parallel;
  if (!options.broadcast_buffers) buffers.clear();
  if (parallel.mode == ParallelConfig::Mode::kPowerSgd) {
    return std::make_unique<PowerSgd>(parallel, group, std::move(buffers), parts.parameters,
                                      options.accumulation_dtype);
  }
  if (parallel.mode == ParallelConfig::Mode::kAllReduce) {
    return std::make_unique<OptimizerExchange>(group, std::move(buffers), parts.parameters,
                                               *parts.optimizer, options, config.TrainsApart());
  }
  std::vector<NamedTensor> weights;
  for (const WeightPart& part : parts.states->parts()) {
    weights.push_back({parts.parameters[part.parameter].name, part.weight});
  }
  std::optional<at::ScalarType> dtype;
  if (config.communication.dtype) dtype = options.communication_dtype;
  return std::make_unique<OuterStep>(parallel, group, std::move(buffers), std::move(weights),
                                     dtype);
}

// Creates the parts of a step for ranks that hold whole models and do not exchange every gradient
// in every step.
StepParts ExchangingParts(const StepInputs& inputs) {
  const ProcessGroup& group = inputs.ranks.data();
  const GradSyncOptions options =
      WholeModelSyncOptions(inputs.config, inputs.module, inputs.passes);
  const std::vector<at::Tensor> buffers = inputs.module.buffers();
  auto sync =
      std::make_unique<OwnGradSync>(group, TrainableParameters(inputs.module), buffers, options);
  OwnGradSync& own = *sync;
  StepParts parts = PartsOf(inputs, std::make_unique<ReplicatedStates>(inputs.config, inputs.module,
                                                                       group, std::move(sync)));
  parts.exchange = MakeExchange(inputs.config, group, parts, buffers, options);
  own.ReduceBy(*parts.exchange);
  return parts;
}

StepParts SynchronousParts(const StepInputs& inputs, InitRecording* deferred) {
  const EngineConfig& config = inputs.config;
  torch::nn::Module& module = inputs.module;
  const ProcessGroup& replicas = inputs.ranks.data();
  if (config.parallel.mode == ParallelConfig::Mode::kParameterServer) {
    return PartsOf(inputs,
                   std::make_unique<ServerStates>(config, module, inputs.ranks, inputs.passes));
  }
  if (config.parallel.mode != ParallelConfig::Mode::kAllReduce ||
      (config.optimizer && config.optimizer->CompressesExchanges())) {
    return ExchangingParts(inputs);
  }
  if (config.zero.stage > 0) {
    return PartsOf(inputs, std::make_unique<ShardedStates>(config, module, inputs.ranks,
                                                           inputs.passes, deferred));
  }
  auto sync = MakeGradSync(replicas, TrainableParameters(module), module.buffers(),
                           WholeModelSyncOptions(config, module, inputs.passes));
  return PartsOf(inputs,
                 std::make_unique<ReplicatedStates>(config, module, replicas, std::move(sync)));
}

// Returns whether the host should not wait for a step's gradients, because a wait keeps a GPU idle
// and cannot be recorded. If the optimizer is offloaded, the CPU must wait for the gradients
// anyway, so the result is false.
bool WaitingCosts(const EngineConfig& config, const MeshGroups& ranks) {
  if (config.cuda_graph) return true;
  const bool offloads =
      config.zero.stage > 0 && config.zero.offload_optimizer.device != OffloadDevice::kNone;
  return !ranks.world().device().is_cpu() && !offloads;
}

bool IsAdam(const EngineConfig& config) { return config.optimizer && config.optimizer->IsAdam(); }

}  // namespace

std::unique_ptr<OptimizerStep> MakeOptimizerStep(const StepInputs& inputs) {
  const EngineConfig& config = inputs.config;
  InitRecording* const deferred = PrepareModule(inputs);
  ShareWholeTensors(inputs);
  if (config.parallel.staleness) {
    auto states = std::make_unique<StaleStates>(config, inputs.module, inputs.ranks, inputs.passes);
    StaleStates& servers = *states;
    return MakeServerStep(PartsOf(inputs, std::move(states)), servers);
  }
  StepParts parts = SynchronousParts(inputs, deferred);
  const bool waiting_costs = WaitingCosts(config, inputs.ranks);
  if (waiting_costs && IsAdam(config)) parts.optimizer->MakeReplayable();
  const bool needs_norm = config.precision.loss_scaler.has_value() ||
                          (config.precision.skip_overflow && !parts.optimizer->replayable());
  if (waiting_costs && !inputs.ranks.mesh().cuts_model() && !needs_norm) {
    return MakeDeviceStep(std::move(parts));
  }
  return MakeSynchronousStep(std::move(parts));
}

}  // namespace dslaunch
