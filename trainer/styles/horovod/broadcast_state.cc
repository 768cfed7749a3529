#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

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

// visit(x) with each field of options or of a parameter's state: a number, a bool or a tensor.
template <class Visit>
void ForFields(SGDOptions& options, Visit& visit) {
  visit(options.lr()), visit(options.momentum()), visit(options.dampening());
  visit(options.weight_decay()), visit(options.nesterov());
}
template <class Visit>
void ForFields(SGDParamState& state, Visit& visit) {
  visit(state.momentum_buffer());
}
template <class Options, class Visit>
void ForAdamFields(Options& options, Visit& visit) {
  visit(options.lr()), visit(std::get<0>(options.betas())), visit(std::get<1>(options.betas()));
  visit(options.eps()), visit(options.weight_decay()), visit(options.amsgrad());
}
template <class State, class Visit>
void ForAdamState(State& state, Visit& visit) {
  visit(state.step()), visit(state.exp_avg()), visit(state.exp_avg_sq());
  visit(state.max_exp_avg_sq());
}
template <class Visit>
void ForFields(AdamOptions& options, Visit& visit) {
  ForAdamFields(options, visit);
}
template <class Visit>
void ForFields(AdamParamState& state, Visit& visit) {
  ForAdamState(state, visit);
}
template <class Visit>
void ForFields(AdamWOptions& options, Visit& visit) {
  ForAdamFields(options, visit);
}
template <class Visit>
void ForFields(AdamWParamState& state, Visit& visit) {
  ForAdamState(state, visit);
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

// What a rank has, as numbers; of a tensor, whether there is one.
struct Write {
  std::vector<double> numbers;
  void operator()(const at::Tensor& tensor) { numbers.push_back(tensor.defined() ? 1 : 0); }
  template <class Number>
  void operator()(const Number& number) {
    numbers.push_back(static_cast<double>(number));
  }
};

// Takes what the root has; tensors get memory, in the shape of `like`, and are kept in `tensors`.
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

template <class Options, class State>
void BroadcastAs(torch::optim::Optimizer& optimizer, int root_rank) {
  const at::NoGradGuard no_grad;
  const bool is_root = Rank() == root_rank;
  const auto state_of = [&](const at::Tensor& parameter) -> State* {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    return found == optimizer.state().end() ? nullptr : &static_cast<State&>(*found->second);
  };
  Write own;
  for (auto& group : optimizer.param_groups()) {
    ForFields(static_cast<Options&>(group.options()), own);
    for (const at::Tensor& parameter : group.params()) {
      State* const state = state_of(parameter);
      State none;
      own(state != nullptr);
      ForFields(state != nullptr ? *state : none, own);
    }
  }
  at::Tensor numbers = at::tensor(own.numbers, at::kDouble);
  Broadcast_(numbers, root_rank, {.name = "broadcast.optimizer_options"});
  Read read{numbers.const_data_ptr<double>()};
  for (auto& group : optimizer.param_groups()) {
    ForFields(static_cast<Options&>(group.options()), read);
    for (const at::Tensor& parameter : group.params()) {
      const bool has_state = *read.next++ != 0;
      auto fresh = std::make_unique<State>();
      read.like = parameter;
      State* const state = state_of(parameter);
      ForFields(state != nullptr ? *state : *fresh, read);
      auto* const key = parameter.unsafeGetTensorImpl();
      if (!has_state) {
        optimizer.state().erase(key);
      } else if (state == nullptr) {
        optimizer.state().emplace(key, std::move(fresh));
      }
    }
  }
  if (is_root && read.next != numbers.const_data_ptr<double>() + numbers.numel()) {
    throw TrainError(ExitCode::kInternal, "the state of the optimizer changed while it was read");
  }
  std::vector<Handle> handles;
  for (at::Tensor& tensor : read.tensors) {
    handles.push_back(BroadcastAsync_(
        tensor, root_rank, {.name = "broadcast.optimizer." + std::to_string(handles.size())}));
  }
  for (const Handle& handle : handles) Synchronize(handle);
}

}  // namespace

void BroadcastOptimizerState(torch::optim::Optimizer& optimizer, int root_rank) {
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) != nullptr) {
    BroadcastAs<SGDOptions, SGDParamState>(optimizer, root_rank);
  } else if (dynamic_cast<torch::optim::Adam*>(&optimizer) != nullptr) {
    BroadcastAs<AdamOptions, AdamParamState>(optimizer, root_rank);
  } else if (dynamic_cast<torch::optim::AdamW*>(&optimizer) != nullptr) {
    BroadcastAs<AdamWOptions, AdamWParamState>(optimizer, root_rank);
  } else if (dynamic_cast<torch::optim::RMSprop*>(&optimizer) != nullptr) {
    BroadcastAs<RMSpropOptions, RMSpropParamState>(optimizer, root_rank);
  } else if (dynamic_cast<torch::optim::Adagrad*>(&optimizer) != nullptr) {
    BroadcastAs<AdagradOptions, AdagradParamState>(optimizer, root_rank);
  } else {
    throw TrainError(ExitCode::kUsage,
                     "BroadcastOptimizerState: the optimizer is none of torch::optim's SGD, Adam, "
                     "AdamW, RMSprop and Adagrad; broadcast its tensors with BroadcastParameters");
  }
}

}  // namespace dslaunch::horovod
