// One optimizer step of training on this rank.
#pragma once

#include "dslaunch/engine.h"
#include "dslaunch/model.h"
#include "dslaunch/process_group.h"
#include "trainer/config/recipe.h"
#include "trainer/data/loader.h"
#include "trainer/program/progress.h"

namespace dslaunch {

// Takes the step's micro-batches from `batches` and ends with the update, or without one where the
// gradients overflowed. Collective.
StepFacts TrainStep(Engine<Model>& engine, BatchLoader& batches, const ProcessGroup& group,
                    const RunConfig& run, int64_t step);

}  // namespace dslaunch
