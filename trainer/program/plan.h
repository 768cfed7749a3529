// Implements --plan_memory and --plan_pipeline, which estimate training without training.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"
#include "trainer/device/accelerator.h"

namespace dslaunch {

// Prints on rank 0 the memory of each rank, for run.ranks ranks or the ranks of the job, and
// whether it fits into `device` or this machine. With run.metrics_jsonl, also writes the plan as
// JSON. The model is constructed without allocating memory, so one process plans for any number of
// ranks. Throws TrainError.
void PlanMemoryOfRecipe(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device);

// Draws on rank 0 the actions of each pipeline stage, based on computed costs of the layers, and
// prints a comparison of the schedules. Throws TrainError.
void PlanPipelineOfRecipe(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
