// One optimizer step of training on this rank.
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/loader.h"
#include "trainer/program/progress.h"
#include "trainer/program/trainee.h"

namespace dslaunch {

// Takes the step's micro-batches from `batches` and ends with the update, or without one where the
// gradients overflowed. Collective.
// Adds to `times`.
StepFacts TrainStep(Trainee& trainee, BatchLoader& batches, const RunConfig& run, int64_t step,
                    PhaseTimes& times);

}  // namespace dslaunch
