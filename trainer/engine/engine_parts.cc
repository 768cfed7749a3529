#include "trainer/engine/engine_parts.h"

#include <algorithm>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/comm/desync_detector.h"
#include "trainer/engine/pipeline_peers.h"
#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/zero/parameter_gatherer.h"

namespace dslaunch {
namespace {

// Returns `config`. Throws if `config` has settings that cannot be combined with the program's own
// optimizer.
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

// Returns `module`. Throws if another engine already uses one of its parameters.
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

// Returns `ranks`. With tensor parallelism, ranks of different groups may wait for each other in a
// cycle, so one detector watches the groups of all axes.
std::shared_ptr<const MeshGroups> Watched(std::shared_ptr<const MeshGroups> ranks) {
  if (ranks->tensor() == nullptr) return ranks;
  const ProcessGroup& world = ranks->world();
  DesyncDetector& detector = world.desync_detector();
  const auto join = [&](const ProcessGroup& group) {
    std::vector<size_t> members;
    for (const size_t rank : group.job_ranks()) {
      const auto found = std::ranges::find(world.job_ranks(), rank);
      members.push_back(static_cast<size_t>(found - world.job_ranks().begin()));
    }
    group.desync_detector().Join(detector.shared_from_this(), std::move(members));
  };
  join(*ranks->tensor());
  join(ranks->data());
  for (const auto* const tied : {&ranks->tied(), &ranks->tied_buffers()}) {
    for (const TiedGroup& each : *tied) join(*each.group);
  }
  detector.Watch(DesyncDetector::PatienceFor(world.timeout()));
  return ranks;
}

std::optional<LayerRunner> Recomputed(torch::nn::Module& module, int64_t parts) {
  return parts > 0 ? std::make_optional<LayerRunner>(module, parts) : std::nullopt;
}

// Checks that the parts of the model on different ranks fit together. Returns the parameters that
// only other pipeline stages have.
std::vector<ParameterInfo> CheckStages(const EngineConfig& config, const torch::nn::Module& module,
                                       const MeshGroups& ranks, Passes passes) {
  if (passes == Passes::kMicroBatches && ranks.tensor() == nullptr) return {};
  CheckSameConfig(ranks.world(), config);
  if (ranks.tensor() != nullptr) CheckParts(ranks, module);
  if (passes == Passes::kMicroBatches) return {};
  return ParametersElsewhere(ranks, module);
}

}  // namespace

EngineParts::EngineParts(const EngineConfig& own_config, torch::nn::Module& own_module,
                         std::shared_ptr<const MeshGroups> own_ranks, Passes kind,
                         InitRecording* deferred, const OptimizerFactory& make_optimizer)
    : config(CheckedConfig(own_config, make_optimizer)),
      module(Unowned(own_module)),
      ranks(Watched(std::move(own_ranks))),
      recomputed(Recomputed(module, config.number_checkpoints)),
      guard(ranks->data(), ranks->tensor(), module, /*has_values=*/deferred == nullptr),
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
