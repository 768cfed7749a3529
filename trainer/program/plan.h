// The modes that estimate training without training: --plan_memory, --plan_pipeline.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"
#include "trainer/device/accelerator.h"

namespace dslaunch {

// On rank 0, prints the memory of each rank, for run.ranks or the ranks of the job, and whether
// that fits into `device` or this machine; with run.metrics_jsonl also as JSON. The model is
// constructed without memory, so one process plans for any number of ranks. Throws TrainError.
void PlanMemoryOfRecipe(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device);

// On rank 0, draws the actions of each pipeline stage, by computed costs of the layers, and
// compares the schedules. Throws TrainError.
void PlanPipelineOfRecipe(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
