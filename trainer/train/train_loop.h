// The loop over a run's optimizer steps.
#pragma once

#include <cstdint>

#include "trainer/train/train_hook.h"
#include "trainer/train/train_run.h"

namespace dslaunch {

// Trains until the last step, or until all ranks know that one requests a stop (run.stop), and
// destroys the hooks. Returns the last step made. Collective. Throws kBadInput on all ranks if
// training has diverged.
int64_t TrainSteps(TrainRun& run, TrainHooks hooks);

}  // namespace dslaunch
