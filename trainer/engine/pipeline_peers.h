// Checks ranks with different parts of a model, and exchanges data between them, before their
// engines are made.
#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "trainer/config/engine_config.h"
#include "trainer/config/parameter_groups.h"
#include "trainer/mesh/mesh_groups.h"

namespace dslaunch {

// Throws TrainError kBadInput on every rank if the ranks cannot train one model with their
// configurations. The message names the ranks and their values. Collective over `world`.
void CheckSameConfig(const ProcessGroup& world, const EngineConfig& config);

// Throws TrainError kBadInput on every rank of ranks.tensor(), naming the parameter, if these ranks
// do not hold the parts of one model. Parameters that are not cut must have the same shape on all
// ranks. The cuts of a parameter must fit the ranks' tensors and together cover the whole
// parameter. Collective over ranks.tensor(), which must not be null.
void CheckParts(const MeshGroups& ranks, const torch::nn::Module& module);

// Returns the parameters that only stages other than this stage have, ordered by name. Collective
// over ranks.world(). Throws on every rank if the replicas of a stage have different models, if no
// stage has a parameter to train, or if several stages train a parameter that is not in
// ranks.tied().
std::vector<ParameterInfo> ParametersElsewhere(const MeshGroups& ranks,
                                               const torch::nn::Module& module);

}  // namespace dslaunch
