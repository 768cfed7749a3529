// What the engine of one pipeline stage has to know of the others.
#pragma once

#include <torch/nn/module.h>

#include <set>
#include <string>
#include <vector>

#include "trainer/config/engine_config.h"
#include "trainer/config/parameter_groups.h"
#include "trainer/parallel/engine_ranks.h"

namespace dslaunch {

struct PipelinePeers {
  std::vector<ParameterInfo> parameters;  // that only other stages have
  // Of this stage's parameters and buffers those of which the copy of another stage counts: norms
  // have it, and checkpoints hold it.
  std::set<std::string> counted_elsewhere;
};

// Collective over `world`. Throws TrainError kBadInput on every rank, naming ranks and both values,
// where the configurations of the ranks would keep them from training one model.
void CheckSameConfig(const ProcessGroup& world, const EngineConfig& config);

// Collective over ranks.world. Throws on every rank where the replicas of a stage have different
// models, where no stage trains anything, or where several train a parameter that is not tied.
PipelinePeers ExchangePeerInfo(const EngineRanks& ranks, const torch::nn::Module& module);

}  // namespace dslaunch
