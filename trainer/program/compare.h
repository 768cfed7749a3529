// Implements run.mode "compare_precision", which compares the precisions of recipe.engines.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"
#include "trainer/device/accelerator.h"

namespace dslaunch {

// Trains the run's steps once with each of recipe.engines, from the same initial weights. Prints
// time, loss and memory of each run (compare_table.h). Saves nothing. Collective.
void ComparePrecision(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device);

}  // namespace dslaunch
