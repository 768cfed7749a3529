// The three ways to make an optimizer step, a file each.
#pragma once

#include <memory>

#include "trainer/parallel/server/stale_states.h"
#include "trainer/step/optimizer_step.h"

namespace dslaunch {

// Knows the norm of the gradients before it updates, so all ranks decide together whether to skip
// the step. Works for all states, exchanges and pipelines. Gives all pipeline stages that share a
// parameter the values of the copy that counts. Collective.
std::unique_ptr<OptimizerStep> MakeSynchronousStep(StepParts parts);

// Does not wait for the device: what depends on gradients happens there, so the host can queue the
// next step meanwhile, or record this one ("cuda_graph"). For one pipeline stage without a loss
// scaler. If the configuration skips updates whose gradients are not finite, the optimizer must be
// replayable; otherwise such gradients make weights and the next losses not finite, which ends the
// run when a loss is read.
std::unique_ptr<OptimizerStep> MakeDeviceStep(StepParts parts);

// For servers that update as gradients arrive (parallel.staleness): each rank clips its own
// gradients by their own norm and sends them; threads of the servers apply them with the optimizer.
// No rank waits for another but as StaleTraining describes. `servers` are parts.states.
std::unique_ptr<OptimizerStep> MakeServerStep(StepParts parts, StaleStates& servers);

}  // namespace dslaunch
