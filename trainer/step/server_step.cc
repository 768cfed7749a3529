#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/parallel/gradient_arrivals.h"
#include "trainer/precision/gradients.h"
#include "trainer/step/step_kinds.h"

namespace dslaunch {
namespace {

class ServerStep : public OptimizerStep {
 public:
  ServerStep(StepParts parts, StaleStates& states)
      : OptimizerStep(std::move(parts)), servers_(states) {
    servers_.UpdateBy([this](std::vector<at::Tensor> gradients, int64_t step) {
      for (size_t i = 0; i < gradients.size(); ++i) {
        gradients[i] = gradients[i].to(states_->parts()[i].weight.scalar_type());
      }
      // Each rank makes an update in each step, so the schedule counts steps rather than updates.
      optimizer_->SetUpdates(optimizer_->updates(), step - 1);
      optimizer_->Step(gradients);
    });
  }
  ~ServerStep() override { servers_.UpdateBy(nullptr); }

  StaleTraining* stale_training() override { return &servers_; }

 protected:
  void Update(const std::vector<at::Tensor>& losses) override {
    const std::vector<at::Tensor> gradients = servers_.Gradients();
    std::vector<at::Tensor> defined;
    std::vector<size_t> indices;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) {
        if (!config_.zero.ignore_unused_parameters) RefuseWithoutGradient(parameters_[i]);
        continue;
      }
      defined.push_back(gradients[i]);
      indices.push_back(i);
    }
    const double norm = defined.empty() ? 0 : GradientNorm(defined);
    last_.grad_norm = at::scalar_tensor(norm, at::kDouble);
    if (!std::isfinite(norm) && RefusesNonFinite()) {
      Skip(parameters_[indices[FirstNonFinite(defined).value_or(0)]].name, losses,
           /*all_ranks=*/false);
      return servers_.PushGradients({});
    }
    if (config_.gradient_clipping != 0 && !defined.empty()) {
      const double factor = std::min(1.0, config_.gradient_clipping / (norm + 1e-6));
      if (factor != 1) at::_foreach_mul_(defined, factor);
    }
    servers_.PushGradients(gradients);
    // A rank without parts is not a server and applies no updates, so its counters must be set
    // here.
    if (states_->parts().empty()) {
      servers_.WithoutUpdates([this] { optimizer_->SetUpdates(steps() + 1, steps() + 1); });
    }
  }

  double CurrentLr() override {
    double lr = 0;
    servers_.WithoutUpdates([&] { lr = optimizer_->lr(); });
    return lr;
  }
  void Resumed() override { servers_.SetSteps(steps()); }

 private:
  StaleStates& servers_;
};

}  // namespace

std::unique_ptr<OptimizerStep> MakeServerStep(StepParts parts, StaleStates& servers) {
  return std::make_unique<ServerStep>(std::move(parts), servers);
}

}  // namespace dslaunch
