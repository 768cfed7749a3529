// Reads the optimizer's state in a model file of DeepSpeed without ZeRO.
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

// Adds the optimizer's state, and fp32 weights if the model has 16-bit weights. Returns the names
// of the parameters whose weights it added. If the assignment is not clear, adds a note instead.
std::set<std::string> AddWholeOptimizer(const TorchArchive& archive, const DeepSpeedModel& model,
                                        ForeignCheckpoint* plan);

// Returns, for each group and each of its shapes, the index in `candidates` of the matching
// parameter; nullopt if no assignment fits or more than one does. Each group is in the candidates'
// order; candidates may remain. Returns nullopt also where about a million partial assignments
// would have to be compared. Pure.
using Shapes = std::vector<std::vector<int64_t>>;
std::optional<std::vector<std::vector<size_t>>> AssignByShape(const std::vector<Shapes>& groups,
                                                              const Shapes& candidates);

}  // namespace dslaunch
