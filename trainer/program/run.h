// One rank's whole life.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Does what run.mode says: trains, evaluates, predicts or plans. Throws TrainError only; one of
// another rank's death is kUnavailable and says that this rank is not the cause.
void Run(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
