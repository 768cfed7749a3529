// Reads the optimizer's state from a model file of DeepSpeed without ZeRO.
//
// The state numbers parameters from 0, group by group, and does not contain their names. So names
// are found by shape: a group has its parameters in the model's order, and the state is read only
// if exactly one assignment fits.
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
// of the parameters whose fp32 weights were added. If no assignment of names or more than one fits,
// adds a note instead.
std::set<std::string> AddWholeOptimizer(const TorchArchive& archive, const DeepSpeedModel& model,
                                        ForeignCheckpoint* plan);

// Returns, for each group and each of its shapes, the index in `candidates` of the matching
// parameter. The parameters of a group are in the candidates' order; candidates may remain
// unassigned. Returns nullopt if no assignment fits, if several fit, or if about a million partial
// assignments would have to be compared. Pure.
using Shapes = std::vector<std::vector<int64_t>>;
std::optional<std::vector<std::vector<size_t>>> AssignByShape(const std::vector<Shapes>& groups,
                                                              const Shapes& candidates);

}  // namespace dslaunch
