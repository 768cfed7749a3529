#include "trainer/compat/horovod/optimizer_state.h"

#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dslaunch/horovod.h"
#include "trainer/base/train_error.h"

namespace dslaunch::horovod {
namespace {

using torch::optim::AdagradOptions;
using torch::optim::AdagradParamState;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::RMSpropOptions;
using torch::optim::RMSpropParamState;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

template <class T, class... Kinds>
concept OneOf = (std::same_as<T, Kinds> || ...);

// Calls visit(x) for each field x of the options or of a parameter's state. A field is a number, a
// bool or a tensor.
template <class Visit>
void ForFields(SGDOptions& options, Visit& visit) {
  visit(options.lr()), visit(options.momentum()), visit(options.dampening());
  visit(options.weight_decay()), visit(options.nesterov());
}
template <class Visit>
void ForFields(SGDParamState& state, Visit& visit) {
  visit(state.momentum_buffer());
}
template <OneOf<AdamOptions, AdamWOptions> Options, class Visit>
void ForFields(Options& options, Visit& visit) {
  visit(options.lr()), visit(std::get<0>(options.betas())), visit(std::get<1>(options.betas()));
  visit(options.eps()), visit(options.weight_decay()), visit(options.amsgrad());
}
template <OneOf<AdamParamState, AdamWParamState> State, class Visit>
void ForFields(State& state, Visit& visit) {
  visit(state.step()), visit(state.exp_avg()), visit(state.exp_avg_sq());
  visit(state.max_exp_avg_sq());
}
template <class Visit>
void ForFields(RMSpropOptions& options, Visit& visit) {
  visit(options.lr()), visit(options.alpha()), visit(options.eps());
  visit(options.weight_decay()), visit(options.momentum()), visit(options.centered());
}
template <class Visit>
void ForFields(RMSpropParamState& state, Visit& visit) {
  visit(state.step()), visit(state.square_avg()), visit(state.momentum_buffer());
  visit(state.grad_avg());
}
template <class Visit>
void ForFields(AdagradOptions& options, Visit& visit) {
  visit(options.lr()), visit(options.lr_decay()), visit(options.weight_decay());
  visit(options.initial_accumulator_value()), visit(options.eps());
}
template <class Visit>
void ForFields(AdagradParamState& state, Visit& visit) {
  visit(state.sum()), visit(state.step());
}

// Visitor that collects fields as numbers. The number of a tensor is 1 if the tensor is defined,
// and otherwise 0.
struct Write {
  std::vector<double> numbers;
  void operator()(const at::Tensor& tensor) { numbers.push_back(tensor.defined() ? 1 : 0); }
  template <class Number>
  void operator()(const Number& number) {
    numbers.push_back(static_cast<double>(number));
  }
};

// Visitor that sets fields to numbers. Allocates missing tensors in the shape of `like`, and
// collects all tensors.
struct Read {
  const double* next;
  at::Tensor like = {};
  std::vector<at::Tensor> tensors = {};
  void operator()(at::Tensor& tensor) {
    if (*next++ == 0) {
      tensor.reset();
      return;
    }
    if (!tensor.defined()) tensor = at::zeros_like(like);
    tensors.push_back(tensor);
  }
  template <class Number>
  void operator()(Number& number) {
    number = static_cast<Number>(*next++);
  }
};

// Returns the state of a parameter, whose type must be State; null if there is none.
template <class State>
State* FindState(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : &static_cast<State&>(*found->second);
}

template <class Options, class State>
std::vector<double> NumbersOf(torch::optim::Optimizer& optimizer) {
  Write write;
  for (auto& group : optimizer.param_groups()) {
    ForFields(static_cast<Options&>(group.options()), write);
    for (const at::Tensor& parameter : group.params()) {
      State* const state = FindState<State>(optimizer, parameter);
      State none;
      write(state != nullptr);
      ForFields(state != nullptr ? *state : none, write);
    }
  }
  return write.numbers;
}

template <class Options, class State>
std::vector<at::Tensor> SetNumbersOf(torch::optim::Optimizer& optimizer,
                                     const std::vector<double>& numbers) {
  const at::NoGradGuard no_grad;
  Read read{numbers.data()};
  for (auto& group : optimizer.param_groups()) {
    ForFields(static_cast<Options&>(group.options()), read);
    for (const at::Tensor& parameter : group.params()) {
      const bool has_state = *read.next++ != 0;
      auto fresh = std::make_unique<State>();
      read.like = parameter;
      State* const state = FindState<State>(optimizer, parameter);
      ForFields(state != nullptr ? *state : *fresh, read);
      auto* const key = parameter.unsafeGetTensorImpl();
      if (!has_state) {
        optimizer.state().erase(key);
      } else if (state == nullptr) {
        optimizer.state().emplace(key, std::move(fresh));
      }
    }
  }
  return read.tensors;
}

// The two conversion functions for one type of optimizer.
struct OptimizerKind {
  std::vector<double> (*numbers)(torch::optim::Optimizer&);
  std::vector<at::Tensor> (*set)(torch::optim::Optimizer&, const std::vector<double>&);
};

template <class Options, class State>
constexpr OptimizerKind kOptimizerKind = {NumbersOf<Options, State>, SetNumbersOf<Options, State>};

template <class Optimizer>
bool Is(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const Optimizer*>(&optimizer) != nullptr;
}

OptimizerKind KindOfOptimizer(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (Is<SGD>(optimizer)) return kOptimizerKind<SGDOptions, SGDParamState>;
  if (Is<Adam>(optimizer)) return kOptimizerKind<AdamOptions, AdamParamState>;
  if (Is<AdamW>(optimizer)) return kOptimizerKind<AdamWOptions, AdamWParamState>;
  if (Is<RMSprop>(optimizer)) return kOptimizerKind<RMSpropOptions, RMSpropParamState>;
  if (Is<Adagrad>(optimizer)) return kOptimizerKind<AdagradOptions, AdagradParamState>;
  throw TrainError(
      ExitCode::kUsage,
      "the state of this optimizer is not known: use torch::optim's SGD, Adam, AdamW, RMSprop or "
      "Adagrad, or broadcast its tensors with BroadcastParameters");
}

}  // namespace

std::vector<double> OptimizerNumbers(torch::optim::Optimizer& optimizer) {
  return KindOfOptimizer(optimizer).numbers(optimizer);
}

std::vector<at::Tensor> SetOptimizerNumbers(torch::optim::Optimizer& optimizer,
                                            const std::vector<double>& numbers) {
  const OptimizerKind kind = KindOfOptimizer(optimizer);
  const size_t own = kind.numbers(optimizer).size();
  if (numbers.size() != own) {
    throw TrainError(ExitCode::kBadInput,
                     "the optimizer's options and state are " + std::to_string(own) +
                         " numbers here and " + std::to_string(numbers.size()) +
                         " there; take the same optimizer with the same groups of parameters");
  }
  return kind.set(optimizer, numbers);
}

void BroadcastOptimizerState(torch::optim::Optimizer& optimizer, int root_rank) {
  at::Tensor numbers = at::tensor(OptimizerNumbers(optimizer), at::kDouble);
  Broadcast_(numbers, root_rank, {.name = "broadcast.optimizer_options"});
  const double* const first = numbers.const_data_ptr<double>();
  std::vector<Handle> handles;
  for (at::Tensor& tensor : SetOptimizerNumbers(optimizer, {first, first + numbers.numel()})) {
    handles.push_back(BroadcastAsync_(
        tensor, root_rank, {.name = "broadcast.optimizer." + std::to_string(handles.size())}));
  }
  for (const Handle& handle : handles) Synchronize(handle);
}

}  // namespace dslaunch::horovod
