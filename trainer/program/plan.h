// The modes that train nothing and say what training would take: --plan_memory, --plan_pipeline.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"
#include "trainer/device/accelerator.h"

namespace dslaunch {

// Rank 0 prints what each rank would hold in memory, run.ranks of them or those of the job, and
// whether that fits into `device` or this machine. With run.metrics_jsonl also as JSON. The model
// is constructed without memory, so one process plans for any number of ranks. Throws TrainError.
void PlanMemoryOfRecipe(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device);

// Rank 0 draws what each stage of the pipeline would do, by computed costs of the layers, and
// compares the schedules. Throws TrainError.
void PlanPipelineOfRecipe(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
