// Exchange of a few numbers between ranks.
#pragma once

#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Collective. Returns the numbers of every rank, by rank, bit-equal on all ranks. Every rank passes
// the same number of them, at least one.
std::vector<std::vector<double>> GatherNumbers(const ProcessGroup& group,
                                               const std::vector<double>& own);

}  // namespace dslaunch
