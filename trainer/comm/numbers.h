// Gathers a few numbers from all ranks.
#pragma once

#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Returns the numbers of every rank, by rank, bitwise equal on all ranks. Every rank must pass the
// same number of values, at least one. Collective.
std::vector<std::vector<double>> GatherNumbers(const ProcessGroup& group,
                                               const std::vector<double>& own);

}  // namespace dslaunch
