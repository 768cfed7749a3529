// The step that does not wait for the device: all that depends on gradients happens there. So the
// host can queue the next step meanwhile, or record this one ("cuda_graph").
#pragma once

#include <string>
#include <vector>

#include "trainer/step/optimizer_step.h"

namespace dslaunch {

// For one pipeline stage, without a loss scaler. If the configuration skips updates whose gradients
// are not finite, the optimizer must be replayable. Otherwise such gradients make the weights and
// the next losses not finite, which ends the run when a loss is read.
class DeviceStep : public OptimizerStep {
 public:
  explicit DeviceStep(StepParts parts) : OptimizerStep(std::move(parts)) {}
  std::string ObserveGradNorm(double norm) override;

 protected:
  void Update(const std::vector<at::Tensor>& losses) override;
};

}  // namespace dslaunch
