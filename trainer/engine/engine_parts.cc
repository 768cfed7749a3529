#include "trainer/engine/engine_parts.h"

#include <algorithm>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/engine/pipeline_peers.h"
#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/zero/parameter_gatherer.h"

namespace dslaunch {
namespace {

// Returns `config`. Throws if it has settings that the program's own optimizer cannot go with.
const EngineConfig& CheckedConfig(const EngineConfig& config,
                                  const OptimizerFactory& make_optimizer) {
  if (!make_optimizer) return config;
  const std::string problem =
      config.optimizer ? "the configuration, or InitializeOptions::optimizer, gives one too; leave "
                         "one of them out"
      : !config.scheduler.name.empty()
          ? "the configuration's scheduler " + config.scheduler.name +
                " cannot set its learning rate; leave \"scheduler\" out, and step a "
                "torch::optim::LRScheduler of the optimizer"
      : config.cuda_graph ? "\"cuda_graph\" can record the configuration's Adam and AdamW only; "
                            "leave one of them out"
      : config.zero.offload_optimizer.device == OffloadDevice::kNvme
          ? "only the state of the configuration's optimizers can lie in files; leave "
            "zero_optimization.offload_optimizer out, or give it the device cpu"
          : "";
  if (problem.empty()) return config;
  RefuseInput("the program gives an optimizer (InitializeOptions::make_optimizer), but " + problem);
}

// Returns `module`. Throws if another engine holds a parameter of it.
torch::nn::Module& Unowned(torch::nn::Module& module) {
  using Owner = ParameterGatherer::Owner;
  const std::vector<NamedTensor> parameters = Unique(module.named_parameters());
  CheckHooksAreFree(parameters);
  for (const auto& [name, tensor] : parameters) {
    const Owner owner = ParameterGatherer::OwnerOf(tensor);
    if (owner == Owner::kOther) continue;
    RefuseInput("the parameter " + name + " is sharded by another engine (ZeRO stage 3)" +
                (owner == Owner::kGatherer
                     ? "; destroy that engine first, or give each engine a model of its own"
                     : ", which was destroyed, so its values are lost; construct the model anew, "
                       "and load a checkpoint"));
  }
  return module;
}

std::optional<LayerRunner> Recomputed(torch::nn::Module& module, int64_t parts) {
  return parts > 0 ? std::make_optional<LayerRunner>(module, parts) : std::nullopt;
}

// Returns the parameters that only other pipeline stages have.
std::vector<ParameterInfo> CheckStages(const EngineConfig& config, const torch::nn::Module& module,
                                       const MeshGroups& ranks, Passes passes) {
  if (passes == Passes::kMicroBatches) return {};
  CheckSameConfig(ranks.world(), config);
  return ParametersElsewhere(ranks, module);
}

}  // namespace

EngineParts::EngineParts(const EngineConfig& own_config, torch::nn::Module& own_module,
                         std::shared_ptr<const MeshGroups> own_ranks, Passes kind,
                         InitRecording* deferred, const OptimizerFactory& make_optimizer)
    : config(CheckedConfig(own_config, make_optimizer)),
      module(Unowned(own_module)),
      ranks(std::move(own_ranks)),
      recomputed(Recomputed(module, config.number_checkpoints)),
      guard(ranks->data(), module, /*has_values=*/deferred == nullptr),
      step(MakeOptimizerStep({.config = config,
                              .module = module,
                              .ranks = *ranks,
                              .passes = kind,
                              .deferred = deferred,
                              .make_optimizer = make_optimizer,
                              .elsewhere = CheckStages(config, module, *ranks, kind)})),
      frozen(FrozenParameters(module)),
      memory(*step, module, config.memory_breakdown || ActivationMeter::AnyInThisThread()),
      passes(*this, kind) {}

}  // namespace dslaunch
