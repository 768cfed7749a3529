#include "trainer/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "trainer/optim/one_bit.h"

namespace dslaunch {
namespace {

using Type = OptimizerConfig::Type;

// The type of LibTorch's fused updates of Adam and AdamW with the learning rate as a tensor.
using TensorLrUpdate = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                                at::TensorList, at::TensorList, const at::Tensor&, double, double,
                                double, double, bool, bool, const std::optional<at::Tensor>&,
                                const std::optional<at::Tensor>&);

// Returns `number` as a scalar tensor for each parameter, in the form in which the fused kernels
// take the update number.
std::vector<at::Tensor> Repeated(double number, const std::vector<at::Tensor>& parameters) {
  const at::Tensor one = at::full({}, number, parameters[0].options().dtype(at::kFloat));
  return std::vector<at::Tensor>(parameters.size(), one);
}

bool Any16Bit(const std::vector<at::Tensor>& tensors) {
  return std::ranges::any_of(tensors,
                             [](const at::Tensor& item) { return item.element_size() == 2; });
}

// Returns a scalar 1 for each of `tensors`, in the tensor's dtype.
std::vector<at::Tensor> Ones(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> ones;
  for (const at::Tensor& tensor : tensors) ones.push_back(at::ones({}, tensor.options()));
  return ones;
}

// Computes tensors += factor * terms. For 16-bit tensors, at::_foreach_add_ would round the factor
// to 16 bits, so that small factors would become 0 and large factors would overflow.
// at::_foreach_addcmul_, which keeps the factor in fp32, is used instead.
void AddMultiple(std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& terms,
                 double factor) {
  if (!Any16Bit(tensors)) return at::_foreach_add_(tensors, terms, factor);
  at::_foreach_addcmul_(tensors, terms, Ones(terms), factor);
}

// Returns tensors + factor * terms, with the factor in fp32 like AddMultiple.
std::vector<at::Tensor> PlusMultiple(const std::vector<at::Tensor>& tensors,
                                     const std::vector<at::Tensor>& terms, double factor) {
  if (!Any16Bit(tensors)) return at::_foreach_add(tensors, terms, factor);
  return at::_foreach_addcmul(tensors, terms, Ones(terms), factor);
}

// Returns the gradients with weight decay added.
std::vector<at::Tensor> WithDecay(std::vector<at::Tensor> gradients,
                                  const std::vector<at::Tensor>& parameters, double weight_decay) {
  return weight_decay == 0 ? gradients : PlusMultiple(gradients, parameters, weight_decay);
}

// Computes average = decay * average + (1 - decay) * value.
void MoveAverage(std::vector<at::Tensor>& average, const std::vector<at::Tensor>& value,
                 double decay) {
  at::_foreach_lerp_(average, value, 1 - decay);
}

void MoveAverageOfSquares(std::vector<at::Tensor>& average, const std::vector<at::Tensor>& value,
                          double decay) {
  at::_foreach_mul_(average, decay);
  at::_foreach_addcmul_(average, value, value, 1 - decay);
}

// Implements Adam, which adds weight decay to the gradient, and AdamW, which decays the weights
// separately.
class FusedAdam : public Optimizer {
 public:
  explicit FusedAdam(const Inputs& inputs)
      : Optimizer(inputs, inputs.config.amsgrad
                              ? std::vector<std::string>{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
                              : std::vector<std::string>{"exp_avg", "exp_avg_sq"}) {}

  bool takes_pieces() const override { return true; }

 private:
  // Bias correction tends to 1 as the number of updates grows, so an infinite number disables it.
  double UpdateNumber(int64_t update) const override {
    return config_.bias_correction ? static_cast<double>(update)
                                   : std::numeric_limits<double>::infinity();
  }

  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    const std::vector<at::Tensor> largest =
        config_.amsgrad ? group.state[2] : std::vector<at::Tensor>();
    if (group.lr_on_device.defined()) {
      const std::vector<at::Tensor> steps(group.parameters.size(), group.updates_on_device);
      const auto update = config_.type == Type::kAdamW
                              ? static_cast<TensorLrUpdate>(&at::_fused_adamw_)
                              : static_cast<TensorLrUpdate>(&at::_fused_adam_);
      update(group.parameters, gradients, group.state[0], group.state[1], largest, steps,
             group.lr_on_device, config_.beta1, config_.beta2, group.weight_decay, config_.eps,
             config_.amsgrad, /*maximize=*/false, /*grad_scale=*/{},
             skip_.defined() ? std::make_optional(skip_) : std::nullopt);
      return;
    }
    const std::vector<at::Tensor> steps = Repeated(UpdateNumber(updates()), group.parameters);
    if (config_.type == Type::kAdamW) {
      at::_fused_adamw_(group.parameters, gradients, group.state[0], group.state[1], largest, steps,
                        group.lr, config_.beta1, config_.beta2, group.weight_decay, config_.eps,
                        config_.amsgrad, /*maximize=*/false);
    } else {
      at::_fused_adam_(group.parameters, gradients, group.state[0], group.state[1], largest, steps,
                       group.lr, config_.beta1, config_.beta2, group.weight_decay, config_.eps,
                       config_.amsgrad, /*maximize=*/false);
    }
  }
};

class Sgd : public Optimizer {
 public:
  explicit Sgd(const Inputs& inputs)
      : Optimizer(inputs, inputs.config.momentum != 0 ? std::vector<std::string>{"momentum_buffer"}
                                                      : std::vector<std::string>{}) {}

  bool takes_pieces() const override { return true; }

 private:
  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    const bool is_first_step = updates() == 1;
    // Up to LibTorch 2.13, the fused kernel leaves most elements of 16-bit parameters unchanged on
    // CPUs (github.com/pytorch/pytorch/issues/191763), so it is not used for them.
    if (Any16Bit(group.parameters)) {
      return UpdateUnfused(group, gradients, is_first_step);
    }
    const std::vector<at::Tensor> buffers =
        config_.momentum != 0 ? group.state[0] : std::vector<at::Tensor>();
    at::_fused_sgd_(group.parameters, gradients, buffers, group.weight_decay, config_.momentum,
                    group.lr, config_.dampening, config_.nesterov, /*maximize=*/false,
                    is_first_step);
  }

  void UpdateUnfused(Group& group, const std::vector<at::Tensor>& raw_gradients,
                     bool is_first_step) {
    std::vector<at::Tensor> update = WithDecay(raw_gradients, group.parameters, group.weight_decay);
    if (config_.momentum != 0) {
      std::vector<at::Tensor>& buffer = group.state[0];
      at::_foreach_mul_(buffer, config_.momentum);
      AddMultiple(buffer, update, is_first_step ? 1 : 1 - config_.dampening);
      update = config_.nesterov ? PlusMultiple(update, buffer, config_.momentum) : buffer;
    }
    AddMultiple(group.parameters, update, -group.lr);
  }
};

class FusedAdagrad : public Optimizer {
 public:
  explicit FusedAdagrad(const Inputs& inputs) : Optimizer(inputs, {"sum"}) {
    for (const State& state : States()) state.tensor.fill_(config_.initial_accumulator_value);
  }

  bool takes_pieces() const override { return true; }

 private:
  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    at::_fused_adagrad_(group.parameters, gradients, group.state[0],
                        Repeated(static_cast<double>(updates()), group.parameters), group.lr,
                        config_.lr_decay, group.weight_decay, config_.eps, /*maximize=*/false);
  }
};

class RmsProp : public Optimizer {
 public:
  explicit RmsProp(const Inputs& inputs) : Optimizer(inputs, StateNames(inputs.config)) {}

  bool takes_pieces() const override { return true; }

 private:
  static std::vector<std::string> StateNames(const OptimizerConfig& config) {
    std::vector<std::string> names = {"square_avg"};
    if (config.centered) names.push_back("grad_avg");
    if (config.momentum != 0) names.push_back("momentum_buffer");
    return names;
  }

  void Update(Group& group, const std::vector<at::Tensor>& raw_gradients) override {
    const std::vector<at::Tensor> gradients =
        WithDecay(raw_gradients, group.parameters, group.weight_decay);
    std::vector<at::Tensor>& square = group.state[0];
    MoveAverageOfSquares(square, gradients, config_.alpha);
    std::vector<at::Tensor> size;
    if (config_.centered) {
      std::vector<at::Tensor>& mean = group.state[1];
      MoveAverage(mean, gradients, config_.alpha);
      size = at::_foreach_addcmul(square, mean, mean, -1);
      at::_foreach_sqrt_(size);
    } else {
      size = at::_foreach_sqrt(square);
    }
    at::_foreach_add_(size, config_.eps);
    if (config_.momentum == 0) {
      at::_foreach_addcdiv_(group.parameters, gradients, size, -group.lr);
      return;
    }
    std::vector<at::Tensor>& buffer = group.state.back();
    at::_foreach_mul_(buffer, config_.momentum);
    at::_foreach_addcdiv_(buffer, gradients, size);
    AddMultiple(group.parameters, buffer, -group.lr);
  }
};

// Implements LAMB as in DeepSpeed: the trust ratio is bounded and computed without bias correction,
// which is applied to the learning rate instead.
class Lamb : public Optimizer {
 public:
  Lamb(const Inputs& inputs, SumOverRanks sum)
      : Optimizer(inputs, {"exp_avg", "exp_avg_sq"}),
        sum_(std::move(sum)),
        num_parameters_(static_cast<int64_t>(inputs.parameters.size())) {}

 private:
  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    MoveAverage(group.state[0], gradients, config_.beta1);
    MoveAverageOfSquares(group.state[1], gradients, config_.beta2);
    std::vector<at::Tensor> size;
    if (config_.eps_inside_sqrt) {
      size = at::_foreach_add(group.state[1], config_.eps);
      at::_foreach_sqrt_(size);
    } else {
      size = at::_foreach_sqrt(group.state[1]);
      at::_foreach_add_(size, config_.eps);
    }
    std::vector<at::Tensor> update =
        WithDecay(at::_foreach_div(group.state[0], size), group.parameters, group.weight_decay);
    at::_foreach_mul_(update, TrustRatios(group, update));
    AddMultiple(group.parameters, update, -group.lr * BiasCorrection());
  }

  void UpdateElsewhere(Group& group) override { NormsOverRanks(group, {}); }

  std::vector<at::Tensor> TrustRatios(const Group& group,
                                      const std::vector<at::Tensor>& update) const {
    const auto [weight, change] = sum_ ? NormsOverRanks(group, update)
                                       : std::pair(at::stack(at::_foreach_norm(group.parameters)),
                                                   at::stack(at::_foreach_norm(update)));
    const at::Tensor ratio = at::clamp(weight / change, config_.min_coeff, config_.max_coeff);
    return at::where((weight == 0).logical_or(change == 0), at::ones_like(ratio), ratio).unbind();
  }

  // Returns, for each part of this rank, the norms of the whole parameter and of its whole update.
  // Collective.
  std::pair<at::Tensor, at::Tensor> NormsOverRanks(const Group& group,
                                                   const std::vector<at::Tensor>& update) const {
    at::Tensor squares = at::zeros({2, num_parameters_}, at::kDouble);
    const at::Tensor indices =
        at::tensor(std::vector<int64_t>(group.indices.begin(), group.indices.end()), at::kLong);
    if (!update.empty()) {
      const auto add = [&](int64_t row, const std::vector<at::Tensor>& tensors) {
        const at::Tensor norms = at::stack(at::_foreach_norm(tensors)).to(at::kCPU, at::kDouble);
        squares[row].index_add_(0, indices, norms.square());
      };
      add(0, group.parameters);
      add(1, update);
    }
    sum_(squares);
    if (update.empty()) return {};
    const at::Tensor norms = squares.index_select(1, indices).sqrt().to(update[0].options());
    return {norms[0], norms[1]};
  }

  double BiasCorrection() const {
    if (!config_.bias_correction) return 1;
    const auto step = static_cast<double>(updates());
    return std::sqrt(1 - std::pow(config_.beta2, step)) / (1 - std::pow(config_.beta1, step));
  }

  SumOverRanks sum_;  // sums over the ranks; null if every rank has whole parameters
  int64_t num_parameters_;
};

// Implements Lion. As in the paper, the sign of 0 is 0, so a weight that never had a gradient does
// not move. (DeepSpeed's CUDA kernel treats a sign of 0 as negative.)
class Lion : public Optimizer {
 public:
  explicit Lion(const Inputs& inputs) : Optimizer(inputs, {"exp_avg"}) {}

  bool takes_pieces() const override { return true; }

 private:
  void Update(Group& group, const std::vector<at::Tensor>& gradients) override {
    std::vector<at::Tensor> update =
        at::_foreach_lerp(group.state[0], gradients, 1 - config_.beta1);
    at::_foreach_sign_(update);
    at::_foreach_mul_(group.parameters, 1 - group.lr * group.weight_decay);
    AddMultiple(group.parameters, update, -group.lr);
    MoveAverage(group.state[0], gradients, config_.beta2);
  }
};

}  // namespace

Optimizer::Optimizer(const Inputs& inputs, std::vector<std::string> state_names)
    : config_(inputs.config), schedule_(inputs.schedule), state_names_(std::move(state_names)) {
  const auto add_group = [&](double lr, double weight_decay) {
    Group& group = groups_.emplace_back();
    group.configured_lr = lr;
    group.weight_decay = weight_decay;
    group.state.resize(state_names_.size());
  };
  for (const ParameterGroupConfig& group : config_.groups) {
    add_group(group.lr.value_or(config_.lr), group.weight_decay.value_or(config_.weight_decay));
  }
  add_group(config_.lr, config_.weight_decay);
  std::vector<ParameterInfo> infos;
  for (const NamedTensor& parameter : inputs.parameters) {
    infos.push_back({parameter.name, parameter.tensor.dim()});
  }
  infos.insert(infos.end(), inputs.elsewhere.begin(), inputs.elsewhere.end());
  std::vector<size_t> assigned = AssignParameterGroups(config_.groups, infos);
  assigned.resize(inputs.parameters.size());
  for (const size_t group : assigned) groups_[group].empty = false;
  for (size_t i = 0; i < inputs.parts.size(); ++i) {
    const WeightPart& part = inputs.parts[i];
    Group& group = groups_[assigned.at(part.parameter)];
    group.places.push_back(i);
    group.indices.push_back(part.parameter);
    group.parameters.push_back(part.weight);
    for (std::vector<at::Tensor>& tensors : group.state) {
      tensors.push_back(inputs.zeros ? inputs.zeros(part.weight) : at::zeros_like(part.weight));
    }
  }
  ApplySchedule();
}

void Optimizer::Step(const std::vector<at::Tensor>& gradients, const at::Tensor& skip) {
  BeginStep(skip);
  StepParts(0, gradients);
  EndStep();
}

void Optimizer::BeginStep(const at::Tensor& skip) {
  const at::NoGradGuard no_grad;
  skip_ = skip;
  ++updates_;
  ++scheduled_updates_;
  for (Group& group : groups_) {
    if (!group.updates_on_device.defined()) continue;
    if (skip_.defined()) {
      group.updates_on_device.add_(1 - skip_);
    } else {
      group.updates_on_device.add_(1);
    }
  }
}

void Optimizer::StepParts(size_t first, const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) {
    if (group.empty) continue;
    if (group.parameters.empty()) {
      UpdateElsewhere(group);
      continue;
    }
    const auto index_of = [&](size_t place) {
      return static_cast<size_t>(std::ranges::lower_bound(group.places, place) -
                                 group.places.begin());
    };
    const size_t begin = index_of(first);
    const size_t end = index_of(first + gradients.size());
    if (begin == end) continue;
    std::vector<at::Tensor> own;
    for (size_t i = begin; i < end; ++i) own.push_back(gradients.at(group.places[i] - first));
    if (end - begin == group.places.size()) {
      Update(group, own);
    } else {
      Group some = PartsOf(group, begin, end);
      Update(some, own);
    }
  }
}

void Optimizer::EndStep() { ApplySchedule(); }

Optimizer::Group Optimizer::PartsOf(const Group& group, size_t begin, size_t end) {
  const auto cut = [&](const auto& all) {
    return std::decay_t<decltype(all)>(all.begin() + static_cast<ptrdiff_t>(begin),
                                       all.begin() + static_cast<ptrdiff_t>(end));
  };
  Group some = group;
  some.places = cut(group.places);
  some.indices = cut(group.indices);
  some.parameters = cut(group.parameters);
  for (std::vector<at::Tensor>& state : some.state) state = cut(state);
  return some;
}

void Optimizer::MakeReplayable() {
  replayable_ = true;
  for (Group& group : groups_) {
    if (group.parameters.empty()) continue;
    group.lr_on_device = at::zeros({}, group.parameters[0].options().dtype(at::kFloat));
    group.updates_on_device = at::full_like(group.lr_on_device, UpdateNumber(updates_));
  }
}

void Optimizer::Prepare() {
  for (Group& group : groups_) {
    if (group.lr_on_device.defined()) group.lr_on_device.fill_(group.lr);
  }
}

void Optimizer::Replayed() {
  ++updates_;
  ++scheduled_updates_;
  ApplySchedule();
}

void Optimizer::Skipped() {
  --updates_;
  --scheduled_updates_;
  ApplySchedule();
}

std::vector<Optimizer::State> Optimizer::States() const {
  std::vector<State> states;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.places.size(); ++i) {
      for (size_t k = 0; k < state_names_.size(); ++k) {
        states.push_back({group.places[i], state_names_[k], group.state[k][i]});
      }
    }
  }
  return states;
}

std::vector<double> Optimizer::lrs() const {
  std::vector<double> lrs;
  for (const Group& group : groups_) lrs.push_back(group.lr);
  return lrs;
}

void Optimizer::SetLrs(const std::vector<double>& lrs) {
  for (size_t i = 0; i < groups_.size(); ++i) groups_[i].configured_lr = lrs.at(i);
  ApplySchedule();
}

void Optimizer::SetUpdates(int64_t updates, int64_t scheduled_updates) {
  updates_ = updates;
  scheduled_updates_ = scheduled_updates;
  for (Group& group : groups_) {
    if (group.updates_on_device.defined()) group.updates_on_device.fill_(UpdateNumber(updates_));
  }
  ApplySchedule();
  Resumed();
}

void Optimizer::ApplySchedule() {
  for (Group& group : groups_)
    group.lr = ScheduledLr(schedule_, group.configured_lr, scheduled_updates_);
  if (const std::optional<double> momentum = ScheduledMomentum(schedule_, scheduled_updates_)) {
    config_.beta1 = *momentum;
    config_.beta2 = kOneCycleBeta2;
  }
}

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config, const LrSchedule& schedule,
                                         const std::vector<NamedTensor>& parameters,
                                         const std::vector<WeightPart>& parts, SumOverRanks sum,
                                         const std::vector<ParameterInfo>& elsewhere,
                                         std::shared_ptr<CompressedMean> mean,
                                         const ZerosBeside& zeros) {
  const Optimizer::Inputs inputs{config, schedule, parameters, parts, elsewhere, zeros};
  switch (config.type) {
    case Type::kAdam:
    case Type::kAdamW:
      return std::make_unique<FusedAdam>(inputs);
    case Type::kSgd:
      return std::make_unique<Sgd>(inputs);
    case Type::kAdagrad:
      return std::make_unique<FusedAdagrad>(inputs);
    case Type::kRmsprop:
      return std::make_unique<RmsProp>(inputs);
    case Type::kLamb:
      return std::make_unique<Lamb>(inputs, std::move(sum));
    case Type::kLion:
      return std::make_unique<Lion>(inputs);
    case Type::kOneBitAdam:
    case Type::kZeroOneAdam:
    case Type::kOneBitLamb:
      return MakeOneBitOptimizer(inputs, std::move(mean));
  }
  std::abort();
}

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config, const LrSchedule& schedule,
                                         const std::vector<NamedTensor>& parameters) {
  std::vector<WeightPart> parts;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& weight = parameters[i].tensor;
    parts.push_back({i, weight, Shard::Whole(weight.numel())});
  }
  return MakeOptimizer(config, schedule, parameters, parts);
}

const char* OptimizerTypeName(OptimizerConfig::Type type) {
  switch (type) {
    case Type::kAdam:
      return "Adam";
    case Type::kAdamW:
      return "AdamW";
    case Type::kSgd:
      return "SGD";
    case Type::kAdagrad:
      return "Adagrad";
    case Type::kRmsprop:
      return "RMSprop";
    case Type::kLamb:
      return "Lamb";
    case Type::kLion:
      return "Lion";
    case Type::kOneBitAdam:
      return "OneBitAdam";
    case Type::kZeroOneAdam:
      return "ZeroOneAdam";
    case Type::kOneBitLamb:
      return "OneBitLamb";
  }
  std::abort();
}

}  // namespace dslaunch
