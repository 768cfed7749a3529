// Runs one rank.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Trains, evaluates, predicts or plans, by run.mode. Throws TrainError only; the error for the loss
// of another rank is kUnavailable and states that this rank is not the cause.
void Run(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
