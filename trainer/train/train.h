// Trains a recipe on one rank, from reading the data to the last evaluation.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"
#include "trainer/device/accelerator.h"

namespace dslaunch {

// Reads the data, connects to the other ranks, trains from the first step or from a checkpoint, and
// evaluates. Rank 0 reports on stdout. If training is stopped early, throws kPreempted on every
// rank once the checkpoint is on the disk.
void Train(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device);

}  // namespace dslaunch
