// Defines the interface for work between the steps of a training run, such as reports, checks and
// checkpoints. trainer/train/hooks implements the hooks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/contract/worker_env.h"
#include "trainer/config/recipe.h"
#include "trainer/train/step.h"
#include "trainer/train/train_run.h"

namespace dslaunch {

// A task of a run besides training. The loop (train_loop.h) calls each function of every hook on
// all ranks, in the order of the list of hooks. A hook may run collectives if it runs the same
// collectives on each rank. Steps count from 1; a resumed run continues after the step of its
// checkpoint. An exception of a hook ends the run.
class TrainHook {
 public:
  virtual ~TrainHook() = default;

  // Called before the first step of this run.
  virtual void AtStart(TrainRun&) {}

  virtual void BeforeStep(TrainRun&, int64_t /*step*/) {}
  // Called when the step's work has been submitted to the device. On a CPU the work is complete.
  virtual void AfterSubmit(TrainRun&, int64_t /*step*/, const StepOutcome&) {}
  // Called with the steps whose results are available. On a CPU, that is this step. On a GPU, which
  // may still be computing, the list is empty or has all steps since the last non-empty list.
  virtual void AfterResults(TrainRun&, int64_t /*step*/, const std::vector<StepInfo>&) {}

  // Called before the ranks exchange their windows, which are sums over the steps since the last
  // exchange (window.h). All ranks exchange them after the same steps. A hook may add this rank's
  // numbers to `own`.
  virtual void BeforeExchange(TrainRun&, RankWindow& /*own*/) {}
  // Called after the exchange, with the combined result of the last `steps` steps.
  virtual void AfterExchange(TrainRun&, const AllWindows&, int64_t /*steps*/) {}

  // Called for each step after all other functions. A hook may set run.stop, to the same value on
  // all ranks.
  virtual void AfterStep(TrainRun&, int64_t /*step*/) {}

  // Called after the last step, or after the step at which all ranks decided to stop.
  virtual void AtEnd(TrainRun&) {}
};

using TrainHooks = std::vector<std::unique_ptr<TrainHook>>;

// Returns the hooks of this recipe in the order in which they are called. Call this before this
// rank connects to the other ranks. Throws if a hook cannot write its file, or if the recipe
// contradicts itself. Defined in trainer/train/hooks/make_hooks.cc.
TrainHooks MakeTrainHooks(const Recipe& recipe, const WorkerEnv& env);

}  // namespace dslaunch
