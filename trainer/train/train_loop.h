// Runs the loop over a run's optimizer steps.
#pragma once

#include <cstdint>

#include "trainer/train/train_hook.h"
#include "trainer/train/train_run.h"

namespace dslaunch {

// Trains until the last step, or until the ranks agree to stop because a rank requests it
// (run.stop). Destroys the hooks. Returns the last completed step. Collective. Throws kBadInput on
// all ranks if training has diverged.
int64_t TrainSteps(TrainRun& run, TrainHooks hooks);

}  // namespace dslaunch
