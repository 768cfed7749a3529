// Implements run.mode "trial", which measures one configuration for `dslaunch tune`.
#pragma once

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"
#include "trainer/device/accelerator.h"

namespace dslaunch {

// Trains the run's steps and prints one line of JSON on rank 0, which cli/tune/trial_output.h
// reads:
//   {"trial":{"step_s":[0.41,0.12,...],"samples":[64,64,...],"peak_bytes":75776008}}
// step_s has the seconds of each step on rank 0, samples has the number of samples of each step
// over all ranks, and peak_bytes is the maximum over the ranks of the peak memory of tensors. Does
// not evaluate or save. Collective.
void RunTrial(const Recipe& recipe, const WorkerEnv& env, const RankDevice& device);

}  // namespace dslaunch
