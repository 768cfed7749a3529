// The loop over a run's optimizer steps.
#pragma once

#include <cstdint>

#include "trainer/train/train_hook.h"
#include "trainer/train/train_run.h"

namespace dslaunch {

// Trains until the last step, or until all ranks know that one requests a stop (run.stop). Returns
// the step it ended with. The hooks end with it. Collective. Throws kBadInput on all ranks where
// training has diverged.
int64_t TrainSteps(TrainRun& run, TrainHooks hooks);

}  // namespace dslaunch
