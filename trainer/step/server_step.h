// The step of ranks whose servers update as gradients arrive (parallel.staleness).
#pragma once

#include <vector>

#include "trainer/parallel/server/stale_states.h"
#include "trainer/step/optimizer_step.h"

namespace dslaunch {

// Each rank clips its own gradients by their own norm and sends them to the servers; threads of a
// server apply them with this optimizer. No rank waits for another but as StaleTraining has it.
class ServerStep : public OptimizerStep {
 public:
  // `states` are parts.states.
  ServerStep(StepParts parts, StaleStates& states);
  ~ServerStep() override;
  StaleTraining* stale_training() override { return &servers_; }

 protected:
  void Update(const std::vector<at::Tensor>& losses) override;
  double CurrentLr() override;
  void Resumed() override { servers_.SetSteps(steps()); }

 private:
  StaleStates& servers_;
};

}  // namespace dslaunch
