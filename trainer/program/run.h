// Runs one rank of a training job.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Trains, evaluates, predicts or plans, as run.mode specifies. Throws only TrainError. If another
// rank is lost, throws kUnavailable, which states that this rank is not the cause.
void Run(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
