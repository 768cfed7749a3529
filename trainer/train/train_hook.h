// What happens beside the steps of a training run: reports, checks, checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"
#include "trainer/train/step.h"
#include "trainer/train/train_run.h"

namespace dslaunch {

// One concern of a run. The loop (train_loop.h) calls every hook at each of these points, in the
// order of the list, on all ranks: a hook may run collectives, the same on each rank. Steps count
// from 1 and go on where a resumed run's checkpoint ends. What a hook throws ends the run.
class TrainHook {
 public:
  virtual ~TrainHook() = default;

  // Before the first step of this run.
  virtual void AtStart(TrainRun&) {}

  virtual void BeforeStep(TrainRun&, int64_t /*step*/) {}
  // The step's work has been given to the device; on a CPU it is done.
  virtual void AfterSubmit(TrainRun&, int64_t /*step*/, const StepOutcome&) {}
  // With the steps that have become known: on a CPU this one; on a GPU none, which may still be at
  // work, or all since the last time.
  virtual void AfterResults(TrainRun&, int64_t /*step*/, const std::vector<StepInfo>&) {}

  // Now and then, after the same steps on all ranks, they exchange what they know (window.h). The
  // first adds this rank's part, the second has what all know of the last `steps` steps.
  virtual void BeforeExchange(TrainRun&, RankWindow& /*own*/) {}
  virtual void AfterExchange(TrainRun&, const AllWindows&, int64_t /*steps*/) {}

  // After all of the above. Here a hook may set run.stop, the same on all ranks.
  virtual void AfterStep(TrainRun&, int64_t /*step*/) {}

  // After the last step, or the one at which all ranks decided to stop.
  virtual void AtEnd(TrainRun&) {}
};

using TrainHooks = std::vector<std::unique_ptr<TrainHook>>;

// Those that the recipe asks for, in the order in which their effects come. Throws where what one
// is to write cannot be written, or the recipe contradicts itself, before this rank meets the
// others.
TrainHooks MakeTrainHooks(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
