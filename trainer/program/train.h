// One rank's whole run of a recipe.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Reads the data, meets the other ranks, trains from the first step or from a checkpoint, evaluates
// and leaves. Rank 0 reports on stdout.
// Throws TrainError only; one of another rank's death is kUnavailable and says that this rank is
// not the cause.
void Train(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
