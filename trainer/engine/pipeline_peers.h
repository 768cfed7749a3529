// Checks and exchanges between ranks with different parts of a model before these get their
// engines.
#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "trainer/config/engine_config.h"
#include "trainer/config/parameter_groups.h"
#include "trainer/mesh/mesh_groups.h"

namespace dslaunch {

// Throws TrainError kBadInput on every rank, naming ranks and both values, if the ranks have
// configurations with which they cannot train one model. Collective over `world`.
void CheckSameConfig(const ProcessGroup& world, const EngineConfig& config);

// Throws TrainError kBadInput on every rank of ranks.tensor(), naming the parameter, if these ranks
// do not hold the parts of one model: parameters that they do not cut must have the same shapes,
// and the cuts of each other one must fit its tensors and be the whole parameter together.
// Collective over ranks.tensor(), which must not be null.
void CheckParts(const MeshGroups& ranks, const torch::nn::Module& module);

// Returns the parameters that only other stages than this one have, by name. Collective over
// ranks.world(). Throws on every rank if the replicas of a stage have different models, if no stage
// has a parameter to train, or if several stages train a parameter that is not in ranks.tied().
std::vector<ParameterInfo> ParametersElsewhere(const MeshGroups& ranks,
                                               const torch::nn::Module& module);

}  // namespace dslaunch
