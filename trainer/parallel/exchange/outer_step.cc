#include "trainer/parallel/exchange/outer_step.h"

#include <ATen/ATen.h>

#include "trainer/parallel/exchange/flat_mean.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {

OuterStep::OuterStep(const ParallelConfig& config, const ProcessGroup& group,
                     std::vector<at::Tensor> buffers, std::vector<NamedTensor> weights,
                     std::optional<at::ScalarType> dtype)
    : GradientExchange(group, std::move(buffers)),
      config_(config),
      weights_(std::move(weights)),
      dtype_(dtype) {
  if (config_.mode != ParallelConfig::Mode::kDiloco) return;
  for (const NamedTensor& weight : weights_) {
    start_.push_back(weight.tensor.detach().clone());
    if (config_.outer_momentum != 0) momentum_.push_back(at::zeros_like(start_.back()));
  }
}

bool OuterStep::EndStep() {
  if ((steps_ + 1) % config_.inner_steps != 0) {
    ++steps_;
    return false;
  }
  Exchange();
  GradientExchange::EndStep();
  return true;
}

void OuterStep::Exchange() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> weights = TensorsOf(weights_);
  if (weights.empty()) return;
  if (config_.mode == ParallelConfig::Mode::kLocalSgd) {
    AllReduceFlat(group_, weights, dtype_, MeanScale(group_));
    return;
  }
  std::vector<at::Tensor> update = at::_foreach_sub(start_, weights);
  AllReduceFlat(group_, update, dtype_, MeanScale(group_));
  if (config_.outer_momentum != 0) {
    at::_foreach_mul_(momentum_, config_.outer_momentum);
    at::_foreach_add_(momentum_, update);
    if (config_.outer_nesterov) {
      at::_foreach_add_(update, at::_foreach_mul(momentum_, config_.outer_momentum));
    } else {
      update = momentum_;
    }
  }
  at::_foreach_add_(start_, at::_foreach_mul(update, -config_.outer_lr));
  at::_foreach_copy_(weights, start_);
}

void OuterStep::Restart() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> weights = TensorsOf(weights_);
  BroadcastFromRank0(group_, weights);
  for (size_t i = 0; i < start_.size(); ++i) start_[i].copy_(weights[i]);
  for (const at::Tensor& momentum : momentum_) momentum.zero_();
}

std::vector<RankTensor> OuterStep::RankTensors() const {
  std::vector<RankTensor> tensors;
  for (size_t i = 0; i < start_.size(); ++i) {
    tensors.push_back({"outer_weight/" + weights_[i].name, start_[i]});
    if (!momentum_.empty()) {
      tensors.push_back({"outer_momentum/" + weights_[i].name, momentum_[i]});
    }
  }
  return tensors;
}

}  // namespace dslaunch
