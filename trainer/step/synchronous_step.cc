#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "trainer/comm/gather_texts.h"
#include "trainer/precision/gradients.h"
#include "trainer/step/step_kinds.h"
#include "trainer/step/update_weights.h"

namespace dslaunch {
namespace {

class SynchronousStep : public OptimizerStep {
 public:
  explicit SynchronousStep(StepParts parts) : OptimizerStep(std::move(parts)) { TieParameters(); }

 protected:
  void Update(const std::vector<at::Tensor>& losses) override {
    std::vector<at::Tensor> gradients = PartGradients();
    AllReduceTied(gradients);
    const double own_norm = OwnNorm(gradients) / last_.loss_scale;
    const double norm = NormOverRanks(own_norm);
    last_.grad_norm = at::scalar_tensor(norm, at::kDouble);
    // All ranks have the same norm, even if it is inf or NaN, so all ranks make the same decision.
    if (!std::isfinite(norm) && RefusesNonFinite()) {
      return Skip(FirstNonFiniteParameter(gradients), losses, /*all_ranks=*/!DecidesAlone());
    }
    double factor = 1 / last_.loss_scale;
    if (config_.gradient_clipping != 0) {
      // As in DeepSpeed, gradients that are not reduced over ranks are clipped by this rank's own
      // norm.
      const double clipped = GradientsAreOwn() ? own_norm : norm;
      factor *= std::min(1.0, config_.gradient_clipping / (clipped + 1e-6));
    }
    const auto scale = [factor](const std::vector<at::Tensor>& some) {
      at::_foreach_mul_(some, factor);
    };
    UpdateWeights(config_, *states_, *optimizer_, gradients,
                  factor == 1 ? nullptr : GradientScaling(scale));
    if (scaler_) {
      scaler_ = UpdateLossScale(*config_.precision.loss_scaler, *scaler_, /*overflow=*/false).next;
    }
  }

 private:
  // A part of a tied parameter on this rank.
  struct TiedPart {
    size_t part = 0;
    const ProcessGroup* group = nullptr;
  };

  // Returns whether this step's gradients are not reduced over ranks, because ranks exchange
  // something else.
  bool GradientsAreOwn() const { return exchange_ && exchange_->gradients_are_own(); }
  // Returns whether each rank decides alone whether its step is skipped.
  bool DecidesAlone() const { return GradientsAreOwn() && weights_differ(); }

  void TieParameters() {
    if (ranks_.tied().empty()) return;
    const at::NoGradGuard no_grad;
    const std::vector<WeightPart>& parts = states_->parts();
    for (const TiedGroup& tied : ranks_.tied()) {
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parameters_[parts[i].parameter].name != tied.name) continue;
        tied_parts_.push_back({i, tied.group});
        at::Tensor weight = parts[i].weight;
        tied.group->Broadcast(weight, /*root=*/0);
      }
    }
    states_->CopyMasterToModel();
  }

  // Sums the gradients of tied parameters in at least fp32. Only the sum is rounded, to the dtype
  // that the update of the weight takes.
  void AllReduceTied(std::vector<at::Tensor>& gradients) const {
    for (const TiedPart& tied : tied_parts_) {
      at::Tensor& gradient = gradients[tied.part];
      at::Tensor sum = gradient.to(at::promote_types(gradient.scalar_type(), at::kFloat));
      tied.group->AllReduce(sum);
      const at::ScalarType weight = states_->parts()[tied.part].weight.scalar_type();
      gradient = sum.to(at::promote_types(gradient.scalar_type(), weight));
    }
  }

  // Returns the norm of this rank's gradients, without parameters that another rank or stage
  // counts.
  double OwnNorm(const std::vector<at::Tensor>& gradients) const {
    std::vector<at::Tensor> counted;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const std::string& name = parameters_[states_->parts()[i].parameter].name;
      if (ranks_.Counts(name)) counted.push_back(gradients[i]);
    }
    return counted.empty() ? 0 : GradientNorm(counted);
  }

  // Returns the norm over all ranks, given this rank's norm `own`. If gradients are not reduced
  // over ranks, the result is the root mean square of the ranks' norms, so that all ranks make the
  // same decision. If each rank decides alone, the result is `own`.
  double NormOverRanks(double own) const {
    if (DecidesAlone()) return own;
    if (GradientsAreOwn()) {
      std::vector<double> square = {own * own};
      ranks_.data().AllReduceSum(square);
      return std::sqrt(square[0] / ranks_.data().world_size());
    }
    if (!states_->sharded() && !ranks_.mesh().cuts_model()) return own;
    // Replicas without shards hold the same parts and must be counted once, so only their rank 0
    // counts.
    const bool counts = states_->sharded() || ranks_.data().rank() == 0;
    std::vector<double> square = {counts ? own * own : 0};
    ranks_.world().AllReduceSum(square);
    return std::sqrt(square[0]);
  }

  // Returns the name of the first parameter with a gradient that is not finite, on the first stage
  // with such a parameter. Precondition: some rank has such a gradient.
  std::string FirstNonFiniteParameter(const std::vector<at::Tensor>& gradients) const {
    int64_t position = std::numeric_limits<int64_t>::max();
    if (const std::optional<size_t> own = FirstNonFinite(gradients)) {
      position = (int64_t{ranks_.place().stage} << 32) +
                 static_cast<int64_t>(states_->parts()[*own].parameter);
    }
    at::Tensor first = at::full({1}, position, at::kLong);
    const bool differs = states_->sharded() || ranks_.mesh().cuts_model() || GradientsAreOwn();
    if (differs && !DecidesAlone()) ranks_.world().AllReduce(first, ReduceOp::kMin);
    const auto found = first.item<int64_t>();
    const auto index = static_cast<size_t>(found & 0xffffffff);
    if (ranks_.mesh().pipeline == 1) return parameters_[index].name;
    // Only the ranks of the found stage have the name, so the name is gathered from them.
    for (const std::string& name :
         GatherTexts(ranks_.world(), position == found ? parameters_[index].name : "")) {
      if (!name.empty()) return name + " (stage " + std::to_string(found >> 32) + ")";
    }
    return "";
  }

  std::vector<TiedPart> tied_parts_;  // parts of tied parameters, in the order of ranks_.tied()
};

}  // namespace

std::unique_ptr<OptimizerStep> MakeSynchronousStep(StepParts parts) {
  return std::make_unique<SynchronousStep>(std::move(parts));
}

}  // namespace dslaunch
