// Defines the components of an engine, on which EngineCore and its scopes operate.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/engine_memory.h"
#include "trainer/engine/layer_runner.h"
#include "trainer/engine/pass_gate.h"
#include "trainer/engine/whole_model_guard.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/step/optimizer_step.h"

namespace dslaunch {

struct EngineParts {
  // Creates the parts of an engine; see the constructors of EngineCore. `make_optimizer` is null to
  // use the configuration's optimizer.
  EngineParts(const EngineConfig& config, torch::nn::Module& module,
              std::shared_ptr<const MeshGroups> ranks, Passes passes, InitRecording* deferred,
              const OptimizerFactory& make_optimizer = nullptr);

  const EngineConfig config;
  torch::nn::Module& module;
  const std::shared_ptr<const MeshGroups> ranks;
  // Runs the forward pass if number_checkpoints is set.
  const std::optional<LayerRunner> recomputed;
  WholeModelGuard guard;  // constructed before `step`, which copies rank 0's values to all ranks
  const std::unique_ptr<OptimizerStep> step;
  const std::vector<NamedTensor> frozen;  // parameters that are not trained
  EngineMemory memory;
  PassGate passes;
  // Last argument of SetLearningRates; empty if SetLearningRates was not called.
  std::vector<double> set_lrs;
};

}  // namespace dslaunch
