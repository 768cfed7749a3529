// Makes one optimizer step of training on this rank.
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/loader.h"
#include "trainer/profile/phase.h"
#include "trainer/train/progress.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// The outcome of a step that this rank has submitted. A GPU may not have computed it yet.
struct StepOutcome {
  StepInfo info;  // loss, grad_norm and times are not set
  at::Tensor loss, grad_norm;
  StepTimes times = {};
  TimeSpans compute = {}, whole = {};
};

// Makes a step with the next micro-batches of `batches`. Updates the weights unless the gradients
// overflowed. Collective.
StepOutcome TrainStep(TrainingModel& training_model, BatchLoader& batches, const RunConfig& run,
                      int64_t step);

// Returns the steps in the order of `outcomes`, with loss, grad_norm and times set. Waits for the
// device once. Passes the gradient norms to the engine.
std::vector<StepInfo> ReadSteps(TrainingModel& training_model,
                                const std::vector<StepOutcome>& outcomes);

}  // namespace dslaunch
