// A few numbers of each rank, for all ranks.
#pragma once

#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Collective: the numbers of every rank, by rank, the same bit by bit on all. Each rank gives
// equally many, at least one.
std::vector<std::vector<double>> GatherNumbers(const ProcessGroup& group,
                                               const std::vector<double>& own);

}  // namespace dslaunch
