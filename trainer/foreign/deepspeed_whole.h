// The optimizer's state in a model file of DeepSpeed without ZeRO.
//
// It numbers parameters from 0, the first group's before the next one's. Their names are not saved,
// so they are found by shape: a group has its parameters in the model's order, and the state is
// read only if exactly one assignment fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/foreign/deepspeed_model.h"
#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Adds the optimizer's state, and fp32 weights if the model is of 16 bit. Returns the names of the
// parameters whose weights it added. Without a clear assignment it adds a note instead.
std::set<std::string> AddWholeOptimizer(const TorchArchive& archive, const DeepSpeedModel& model,
                                        ForeignCheckpoint* plan);

// Returns, for each group and each of its shapes, the index in `candidates` of the parameter that
// it is; nullopt if there is no assignment or more than one. Each group is in the candidates'
// order; candidates may remain. Gives up, as for more than one, where about a million
// partial assignments have to be compared. Pure.
using Shapes = std::vector<std::vector<int64_t>>;
std::optional<std::vector<std::vector<size_t>>> AssignByShape(const std::vector<Shapes>& groups,
                                                              const Shapes& candidates);

}  // namespace dslaunch
