#include "trainer/step/optimizer_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/parallel/gradient_arrivals.h"

namespace dslaunch {

OptimizerStep::OptimizerStep(StepParts parts)
    : config_(parts.config),
      ranks_(parts.ranks),
      parameters_(std::move(parts.parameters)),
      states_(std::move(parts.states)),
      optimizer_(std::move(parts.optimizer)),
      exchange_(std::move(parts.exchange)) {
  last_.grad_norm = at::scalar_tensor(0, at::kDouble);
  if (config_.precision.loss_scaler) {
    scaler_ = InitialLossScalerState(*config_.precision.loss_scaler);
  }
}

void OptimizerStep::Begin() {
  last_.skipped = false;
  last_.skip_reason.clear();
  last_.lr = CurrentLr();
  last_.loss_scale = loss_scale();
}

void OptimizerStep::Make(const std::vector<at::Tensor>& losses) {
  if (before_update_) std::exchange(before_update_, nullptr)();
  Begin();
  Update(losses);
  states_->Clear();
  if (exchange_ && exchange_->EndStep()) states_->CopyMasterToModel();
  ++steps_;
}

void OptimizerStep::CountReplay(const at::Tensor& grad_norm) {
  Begin();
  optimizer_->Replayed();
  last_.grad_norm = grad_norm;
  ++steps_;
}

std::vector<at::Tensor> OptimizerStep::PartGradients() {
  std::vector<at::Tensor> gradients = states_->Gradients();
  const std::vector<WeightPart>& parts = states_->parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!gradients.at(i).defined()) RefuseWithoutGradient(parameters_[parts[i].parameter]);
  }
  return gradients;
}

void OptimizerStep::Skip(const std::string& parameter, const std::vector<at::Tensor>& losses,
                         bool all_ranks) {
  const std::string problem = "the gradient of " + parameter + " is not finite";
  if (scaler_) {
    const LossScaleDecision decision =
        UpdateLossScale(*config_.precision.loss_scaler, *scaler_, /*overflow=*/true);
    if (decision.give_up) Fail(problem + "; " + decision.reason, losses, all_ranks);
    scaler_ = decision.next;
    last_.skip_reason = problem + "; " + decision.reason;
  } else if (config_.precision.skip_overflow) {
    last_.skip_reason = problem + "; the update is skipped";
  } else {
    Fail(problem + "; try a lower learning rate", losses, all_ranks);
  }
  last_.skipped = true;
  ++skipped_steps_;
}

// Throws an error that names the first rank whose loss was not finite, if there is such a rank.
void OptimizerStep::Fail(const std::string& problem, const std::vector<at::Tensor>& losses,
                         bool all_ranks) const {
  const ProcessGroup& world = ranks_.world();
  const auto own = static_cast<size_t>(2 * world.rank());
  std::vector<double> all(2 * static_cast<size_t>(world.world_size()));
  for (size_t part = 0; part < losses.size() && all[own] == 0; ++part) {
    const auto loss = losses[part].item<double>();
    if (std::isfinite(loss)) continue;
    all[own] = static_cast<double>(part + 1);
    all[own + 1] = loss;
  }
  if (all_ranks) world.AllReduceSum(all);
  std::string text = "step " + std::to_string(steps_ + 1) + ": ";
  for (size_t i = 0; i < all.size(); i += 2) {
    if (all[i] == 0) continue;
    char loss[96];
    std::snprintf(loss, sizeof loss, "the loss of rank %zu is %g in micro-batch %.0f, so ", i / 2,
                  all[i + 1], all[i]);
    text += loss;
    break;
  }
  RefuseInput(text + problem);
}

void OptimizerStep::Restart() {
  if (exchange_) exchange_->Restart();
  optimizer_->Restart();
}

void OptimizerStep::Resume(const EngineProgress& progress, const std::set<std::string>& without) {
  const auto lacks = [&](const std::vector<RankTensor>& tensors) {
    return std::ranges::any_of(tensors, [&](const RankTensor& item) {
      return without.contains("rank_state/" + item.name);
    });
  };
  steps_ = progress.steps;
  skipped_steps_ = progress.skipped;
  optimizer_->SetUpdates(progress.updates, progress.scheduled_updates);
  if (exchange_) {
    exchange_->SetSteps(steps_);
    if (lacks(exchange_->RankTensors())) exchange_->Restart();
  }
  if (lacks(optimizer_->RankTensors())) optimizer_->Restart();
  Resumed();
  // The scaler keeps its state in two cases: if the checkpoint has no state of a scaler, and if the
  // scale is static, because the configuration sets a static scale.
  if (!scaler_ || !config_.precision.loss_scaler->dynamic || progress.scaler_iteration == 0) return;
  scaler_ = LossScalerState{.scale = progress.loss_scale,
                            .iteration = progress.scaler_iteration,
                            .last_overflow = progress.scaler_last_overflow,
                            .hysteresis = progress.scaler_hysteresis};
}

EngineProgress OptimizerStep::progress() const {
  EngineProgress progress{.steps = steps_,
                          .skipped = skipped_steps_,
                          .updates = optimizer_->updates(),
                          .scheduled_updates = optimizer_->scheduled_updates()};
  if (scaler_) {
    progress.loss_scale = scaler_->scale;
    progress.scaler_iteration = scaler_->iteration;
    progress.scaler_last_overflow = scaler_->last_overflow;
    progress.scaler_hysteresis = scaler_->hysteresis;
  }
  return progress;
}

std::vector<RankTensor> OptimizerStep::RankTensors() const {
  std::vector<RankTensor> tensors;
  if (exchange_) tensors = exchange_->RankTensors();
  for (RankTensor& item : optimizer_->RankTensors()) tensors.push_back(std::move(item));
  return tensors;
}

}  // namespace dslaunch
