// One optimizer step of training on this rank.
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/loader.h"
#include "trainer/profile/phase.h"
#include "trainer/train/progress.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// A step that this rank has submitted; a GPU may not have computed it yet.
struct StepOutcome {
  StepInfo info;  // without loss, grad_norm and times
  at::Tensor loss, grad_norm;
  StepTimes times = {};
  TimeSpans compute = {}, whole = {};
};

// Makes a step with the next micro-batches of `batches`. The weights are updated unless the
// gradients overflowed. Collective.
StepOutcome TrainStep(TrainingModel& training_model, BatchLoader& batches, const RunConfig& run,
                      int64_t step);

// Returns the steps with loss, grad_norm and times, in the same order. Waits for the device once
// and passes the gradient norms to the engine.
std::vector<StepInfo> ReadSteps(TrainingModel& training_model,
                                const std::vector<StepOutcome>& outcomes);

}  // namespace dslaunch
