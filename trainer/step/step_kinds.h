// Declares the three kinds of optimizer steps, each of which has its own source file.
#pragma once

#include <memory>

#include "trainer/parallel/server/stale_states.h"
#include "trainer/step/optimizer_step.h"

namespace dslaunch {

// Returns a step that computes the norm of the gradients on the host before it updates, so that all
// ranks decide together whether to skip the step. It supports all states, exchanges and pipelines.
// Copies the values of a parameter that several pipeline stages share from the first of these
// stages to the other stages. Collective.
std::unique_ptr<OptimizerStep> MakeSynchronousStep(StepParts parts);

// Returns a step that does not wait for the device. All work that depends on gradients is done on
// the device, so the host can enqueue the next step meanwhile, or record this step ("cuda_graph").
// Supports neither a pipeline nor a loss scaler. If the configuration skips updates with gradients
// that are not finite, the optimizer must be replayable. If it does not skip them, such gradients
// make the weights and the next losses not finite, which ends the run when a loss is read.
std::unique_ptr<OptimizerStep> MakeDeviceStep(StepParts parts);

// Returns a step for servers that update as gradients arrive (parallel.staleness). Each rank clips
// its gradients by their own norm and sends them to the servers, whose threads apply them with the
// optimizer. Ranks wait for each other only as StaleTraining describes. `servers` is the object
// that parts.states owns.
std::unique_ptr<OptimizerStep> MakeServerStep(StepParts parts, StaleStates& servers);

}  // namespace dslaunch
