#include "trainer/optim/one_bit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace dslaunch {
namespace {

using Type = OptimizerConfig::Type;

class OneBitOptimizer : public Optimizer {
 protected:
  OneBitOptimizer(const Inputs& inputs, std::vector<std::string> state_names,
                  std::shared_ptr<CompressedMean> mean)
      : Optimizer(inputs, std::move(state_names)), mean_(std::move(mean)) {
    for (const WeightPart& part : inputs.parts) {
      names_.push_back(inputs.parameters[part.parameter].name);
    }
  }

  bool compresses() const { return mean_ && mean_->ranks() > 1; }
  size_t IndexOf(const Group& group) const { return static_cast<size_t>(&group - groups_.data()); }

  // Returns errors of zero for each parameter of each group.
  std::vector<std::vector<CompressionError>> MakeErrors() const {
    std::vector<std::vector<CompressionError>> errors(groups_.size());
    if (!compresses()) return errors;
    for (size_t i = 0; i < groups_.size(); ++i) {
      for (const at::Tensor& weight : groups_[i].parameters) {
        errors[i].push_back(mean_->NoError(weight.numel(), weight));
      }
    }
    return errors;
  }

  static void ForgetErrors(const std::vector<CompressionError>& errors) {
    for (const CompressionError& error : errors) {
      if (!error.worker.defined()) continue;
      error.worker.zero_();
      error.server.zero_();
    }
  }

  void AddErrors(const std::vector<std::vector<CompressionError>>& errors,
                 std::vector<RankTensor>& tensors) const {
    for (size_t i = 0; i < errors.size(); ++i) {
      for (size_t k = 0; k < errors[i].size(); ++k) {
        const std::string& name = names_[groups_[i].places[k]];
        tensors.push_back({"worker_error/" + name, errors[i][k].worker, /*shared=*/false});
        tensors.push_back({"server_error/" + name, errors[i][k].server, /*shared=*/false});
      }
    }
  }

  // Returns, for each parameter, average / (sqrt(variance) + eps) + weight_decay * parameter.
  std::vector<at::Tensor> UpdateOf(const Group& group, const std::vector<at::Tensor>& average,
                                   const std::vector<at::Tensor>& variance) const {
    std::vector<at::Tensor> update = at::_foreach_div(average, SizesOf(variance));
    if (group.weight_decay > 0) {
      at::_foreach_add_(update, at::_foreach_mul(group.parameters, group.weight_decay));
    }
    return update;
  }

  std::vector<at::Tensor> SizesOf(const std::vector<at::Tensor>& variance) const {
    std::vector<at::Tensor> sizes = at::_foreach_sqrt(variance);
    at::_foreach_add_(sizes, config_.eps);
    return sizes;
  }

  void MoveMean(std::vector<at::Tensor>& average, const std::vector<at::Tensor>& value) const {
    at::_foreach_mul_(average, config_.beta1);
    at::_foreach_add_(average, at::_foreach_mul(value, 1 - config_.beta1));
  }

  void MoveVariance(std::vector<at::Tensor>& average, const std::vector<at::Tensor>& value) const {
    at::_foreach_mul_(average, config_.beta2);
    at::_foreach_addcmul_(average, value, value, 1 - config_.beta2);
  }

  std::shared_ptr<CompressedMean> mean_;
  std::vector<std::string> names_;  // name of the parameter of each part
};

class OneBitAdam : public OneBitOptimizer {
 public:
  OneBitAdam(const Inputs& inputs, std::shared_ptr<CompressedMean> mean)
      : OneBitOptimizer(inputs, {"exp_avg", "exp_avg_sq"}, std::move(mean)),
        errors_(MakeErrors()) {}

  bool TakesReducedGradients() const override { return updates() < config_.freeze_step; }

  std::vector<RankTensor> RankTensors() const override {
    std::vector<RankTensor> tensors;
    AddErrors(errors_, tensors);
    return tensors;
  }

  void Restart() override {
    for (const auto& errors : errors_) ForgetErrors(errors);
  }

 private:
  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    std::vector<at::Tensor>& average = group.state[0];
    MoveMean(average, gradients);
    if (updates() <= config_.freeze_step) {
      MoveVariance(group.state[1], gradients);
    } else if (compresses()) {
      mean_->Reduce(average, errors_[IndexOf(group)]);
    }
    at::_foreach_add_(group.parameters,
                      at::_foreach_mul(UpdateOf(group, average, group.state[1]), -group.lr));
  }

  const std::vector<std::vector<CompressionError>> errors_;
};

// Implements 0/1 Adam. At growing intervals the variance is updated with uncompressed gradients; in
// the steps between, the compressed gradient is exchanged. After the variance is frozen, ranks
// update independently, and exchange the sum of their updates at intervals.
class ZeroOneAdam : public OneBitOptimizer {
 public:
  ZeroOneAdam(const Inputs& inputs, std::shared_ptr<CompressedMean> mean)
      : OneBitOptimizer(inputs, {"exp_avg", "exp_avg_sq"}, std::move(mean)), errors_(MakeErrors()) {
    for (const Group& group : groups_) {
      lrs_.push_back(at::zeros({1}, at::kDouble));
      moved_.emplace_back();
      start_.emplace_back();
      for (const at::Tensor& weight : group.parameters) {
        moved_.back().push_back(at::zeros_like(weight));
        start_.back().push_back(weight.detach().clone());
      }
    }
  }

  bool TakesReducedGradients() const override {
    const int64_t update = updates() + 1;
    return !Frozen(update) && update % For(update).variance == 0;
  }

  std::vector<RankTensor> RankTensors() const override {
    std::vector<RankTensor> tensors;
    AddErrors(errors_, tensors);
    for (size_t i = 0; i < groups_.size(); ++i) {
      tensors.push_back({"lrs/" + std::to_string(i), lrs_[i], /*shared=*/true});
      for (size_t k = 0; k < groups_[i].places.size(); ++k) {
        const std::string& name = names_[groups_[i].places[k]];
        tensors.push_back({"momentum_accumulator/" + name, moved_[i][k], /*shared=*/false});
        tensors.push_back({"last_exchanged/" + name, start_[i][k], /*shared=*/true});
      }
    }
    return tensors;
  }

  void Restart() override {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < groups_.size(); ++i) {
      ForgetErrors(errors_[i]);
      lrs_[i].zero_();
      for (size_t k = 0; k < moved_[i].size(); ++k) {
        moved_[i][k].zero_();
        start_[i][k].copy_(groups_[i].parameters[k]);
      }
    }
  }

 private:
  bool Frozen(int64_t update) const { return update > config_.var_freeze_step; }

  void Resumed() override {
    intervals_ = {};
    seen_ = 0;
    intervals_ = For(updates() + 1);
    seen_ = updates();
  }

  // Returns the intervals that apply to the update number `update`.
  ZeroOneIntervals For(int64_t update) const {
    ZeroOneIntervals intervals = intervals_;
    for (int64_t before = seen_ + 1; before < update; ++before) {
      intervals = After(intervals, before, config_);
    }
    return intervals;
  }

  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    intervals_ = For(updates());
    seen_ = updates() - 1;
    if (Frozen(updates())) return UpdateApart(group, gradients);
    std::vector<at::Tensor>& average = group.state[0];
    if (updates() % intervals_.variance == 0) {
      MoveVariance(group.state[1], gradients);
      MoveMean(average, gradients);
    } else {
      if (compresses()) mean_->Reduce(gradients, errors_[IndexOf(group)]);
      MoveMean(average, gradients);
    }
    at::_foreach_add_(group.parameters,
                      at::_foreach_mul(UpdateOf(group, average, group.state[1]), -group.lr));
  }

  void UpdateApart(Group& group, const std::vector<at::Tensor>& gradients) {
    const size_t i = IndexOf(group);
    // The errors so far are errors of gradients, not of updates.
    if (updates() == config_.var_freeze_step + 1) {
      ForgetErrors(errors_[i]);
      at::_foreach_copy_(start_[i], group.parameters);
    }
    std::vector<at::Tensor>& average = group.state[0];
    MoveMean(average, gradients);
    lrs_[i].add_(group.lr);
    const std::vector<at::Tensor> step =
        at::_foreach_mul(UpdateOf(group, average, group.state[1]), -group.lr);
    at::_foreach_add_(moved_[i], step);
    if (updates() % intervals_.exchange != 0) {
      at::_foreach_add_(group.parameters, step);
      return;
    }
    const std::vector<at::Tensor> sizes = SizesOf(group.state[1]);
    at::_foreach_mul_(moved_[i], sizes);
    if (compresses()) mean_->Reduce(moved_[i], errors_[i]);
    at::_foreach_copy_(average, moved_[i]);
    at::_foreach_mul_(average, -1 / lrs_[i].item<double>());
    // Undoing each rank's own updates would add rounding errors, so the new weights are computed
    // from the last common weights.
    at::_foreach_add_(start_[i], at::_foreach_div(moved_[i], sizes));
    at::_foreach_copy_(group.parameters, start_[i]);
    at::_foreach_zero_(moved_[i]);
    lrs_[i].zero_();
  }

  const std::vector<std::vector<CompressionError>> errors_;
  ZeroOneIntervals intervals_;
  int64_t seen_ = 0;             // number of updates that are included in intervals_
  std::vector<at::Tensor> lrs_;  // sum of the learning rates since the last exchange, by group
  // Sum of this rank's updates since the last exchange.
  std::vector<std::vector<at::Tensor>> moved_;
  // The weights after the last exchange, which are equal on all ranks.
  std::vector<std::vector<at::Tensor>> start_;
};

// Implements 1-bit LAMB. The momenta of a group are exchanged as one tensor, scaled to similar
// magnitudes.
class OneBitLamb : public OneBitOptimizer {
 public:
  OneBitLamb(const Inputs& inputs, std::shared_ptr<CompressedMean> mean)
      : OneBitOptimizer(inputs, {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh"}, std::move(mean)) {
    for (const Group& group : groups_) {
      const auto parameters = static_cast<int64_t>(group.parameters.size());
      numbers_.push_back(at::zeros({parameters, kNumbers}, at::kDouble));
      numbers_.back().select(1, kFactor).fill_(1);
      int64_t elements = 0;
      for (const at::Tensor& weight : group.parameters) elements += weight.numel();
      errors_.emplace_back();
      rest_.emplace_back();
      if (!compresses() || elements == 0) continue;
      errors_.back() = mean_->NoError(elements, group.parameters[0]);
      rest_.back() =
          at::zeros({errors_.back().worker.numel() - elements}, errors_.back().worker.options());
    }
  }

  bool TakesReducedGradients() const override { return updates() < config_.freeze_step; }

  std::vector<RankTensor> RankTensors() const override {
    std::vector<RankTensor> tensors;
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].parameters.empty()) continue;
      const std::string place = "/" + std::to_string(i);
      tensors.push_back({"lamb_numbers" + place, numbers_[i], /*shared=*/true});
      if (!errors_[i].worker.defined()) continue;
      tensors.push_back({"worker_error" + place, errors_[i].worker, /*shared=*/false});
      tensors.push_back({"server_error" + place, errors_[i].server, /*shared=*/false});
      tensors.push_back({"momentum_rest" + place, rest_[i], /*shared=*/true});
    }
    return tensors;
  }

  // Resets the compression errors. Keeps numbers_, because these ratios and scales were fixed in
  // earlier phases of the optimizer.
  void Restart() override {
    ForgetErrors(errors_);
    for (const at::Tensor& rest : rest_) {
      if (rest.defined()) rest.zero_();
    }
  }

 private:
  enum Number { kFrozenRatio, kFactor, kScale, kNumbers };  // column of numbers_

  double& NumberOf(size_t group, size_t parameter, Number number) const {
    return numbers_[group].mutable_data_ptr<double>()[parameter * kNumbers + number];
  }

  static double Norm(const at::Tensor& tensor) { return at::norm(tensor).item<double>(); }

  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    if (updates() > config_.freeze_step) return UpdateCompressed(group, gradients);
    const size_t i = IndexOf(group);
    MoveMean(group.state[0], gradients);
    MoveVariance(group.state[1], gradients);
    if (updates() == config_.freeze_step) at::_foreach_copy_(group.state[2], group.state[1]);
    const std::vector<at::Tensor> update = UpdateOf(group, group.state[0], group.state[1]);
    for (size_t k = 0; k < update.size(); ++k) {
      const double weight = Norm(group.parameters[k]), change = Norm(update[k]);
      const double ratio = weight == 0 || change == 0
                               ? 1
                               : std::clamp(weight / change, config_.min_coeff, config_.max_coeff);
      if (ratio != 1) {
        double& frozen = NumberOf(i, k, kFrozenRatio);
        frozen = config_.coeff_beta * frozen + (1 - config_.coeff_beta) * ratio;
      }
      group.parameters[k].add_(update[k], -group.lr * ratio);
    }
  }

  // Sets the factors that multiply the momenta in the exchanged tensor. Called at the first
  // compressed update.
  void SetScales(const Group& group, size_t i) {
    std::vector<double> sizes;
    double sum = 0;
    for (const at::Tensor& average : group.state[0]) {
      sizes.push_back(Norm(average) / std::sqrt(static_cast<double>(average.numel())));
      sum += sizes.back();
    }
    for (size_t k = 0; k < sizes.size(); ++k) {
      const double scale = sum / static_cast<double>(sizes.size()) / sizes[k];
      NumberOf(i, k, kScale) = std::isfinite(scale) ? scale : 1;
    }
  }

  void UpdateCompressed(Group& group, const std::vector<at::Tensor>& gradients) {
    const size_t i = IndexOf(group);
    if (updates() == config_.freeze_step + 1) SetScales(group, i);
    std::vector<at::Tensor>& average = group.state[0];
    std::vector<at::Tensor> last;
    for (const at::Tensor& tensor : average) last.push_back(tensor.clone());
    MoveMean(average, gradients);
    if (compresses()) Exchange(average, i);
    for (size_t k = 0; k < average.size(); ++k) {
      UpdateOne(group, i, k, (average[k] - last[k] * config_.beta1) / (1 - config_.beta1));
    }
  }

  void Exchange(std::vector<at::Tensor>& average, size_t i) {
    std::vector<at::Tensor> flat;
    for (size_t k = 0; k < average.size(); ++k) {
      flat.push_back((average[k] * NumberOf(i, k, kScale)).flatten().to(at::kFloat));
    }
    flat.push_back(rest_[i]);
    const at::Tensor message = at::cat(flat);
    mean_->Reduce({message}, {errors_[i]});
    int64_t start = 0;
    for (size_t k = 0; k < average.size(); ++k) {
      const int64_t elements = average[k].numel();
      average[k].copy_(message.narrow(0, start, elements).view_as(average[k]));
      average[k].div_(NumberOf(i, k, kScale));
      start += elements;
    }
    rest_[i].copy_(message.narrow(0, start, rest_[i].numel()));
  }

  // Updates one parameter. `gradient` is the mean of the ranks' gradients, recovered from the
  // exchanged momentum.
  void UpdateOne(Group& group, size_t i, size_t k, const at::Tensor& gradient) {
    at::Tensor& fresh = group.state[2][k];
    fresh.mul_(config_.beta2).addcmul_(gradient, gradient, 1 - config_.beta2);
    const at::Tensor size = group.state[1][k].sqrt() + config_.eps;
    const at::Tensor direction = group.state[0][k] / size;
    const at::Tensor update =
        group.weight_decay > 0 ? direction + group.parameters[k] * group.weight_decay : direction;
    double factor = (size / (fresh.sqrt() + config_.eps)).max().item<double>();
    if (group.weight_decay > 0) {
      const double part = std::min(1.0, Norm(direction) / Norm(update));
      factor = factor * part + (1 - part);
    }
    double& last = NumberOf(i, k, kFactor);
    factor = std::max(std::min(factor, config_.factor_max), config_.factor_min);
    factor = std::min(factor, last * (1 + config_.factor_threshold));
    factor = std::max(factor, last * (1 - config_.factor_threshold));
    last = factor;
    group.parameters[k].add_(update, -group.lr * NumberOf(i, k, kFrozenRatio) * factor);
  }

  std::vector<at::Tensor> numbers_;  // numbers of each group, [parameters, kNumbers] on the CPU
  std::vector<CompressionError> errors_;  // compression errors of each group
  std::vector<at::Tensor> rest_;          // padding of the exchanged tensor of each group
};

}  // namespace

ZeroOneIntervals After(ZeroOneIntervals intervals, int64_t update, const OptimizerConfig& config) {
  if (update > config.var_freeze_step) {
    if (++intervals.exchange_steps == config.local_step_scaler) {
      intervals.exchange_steps = 0;
      intervals.exchange = std::min(config.local_step_clipper, intervals.exchange * 2);
    }
  } else if (update % intervals.variance == 0 &&
             ++intervals.variance_updates == config.var_update_scaler) {
    intervals.variance_updates = 0;
    intervals.variance *= 2;
  }
  return intervals;
}

std::unique_ptr<Optimizer> MakeOneBitOptimizer(const Optimizer::Inputs& inputs,
                                               std::shared_ptr<CompressedMean> mean) {
  if (inputs.config.type == Type::kOneBitAdam) {
    return std::make_unique<OneBitAdam>(inputs, std::move(mean));
  }
  if (inputs.config.type == Type::kZeroOneAdam) {
    return std::make_unique<ZeroOneAdam>(inputs, std::move(mean));
  }
  return std::make_unique<OneBitLamb>(inputs, std::move(mean));
}

}  // namespace dslaunch
