// Optimizers on LibTorch's fused kernels, or on its foreach kernels where there is no fused one: a
// handful of calls update all parameters of a group.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "trainer/config/optimizer_config.h"

namespace dslaunch {

// One thread. Parameters are what is updated, the model's or their fp32 copies, and have to be
// whole: LAMB measures their norms.
class Optimizer {
 public:
  // What an optimizer keeps of one parameter, in the parameter's shape and dtype. `name` is
  // PyTorch's: "exp_avg" and "exp_avg_sq" (Adam, AdamW and LAMB; with amsgrad also
  // "max_exp_avg_sq"), "exp_avg" (Lion), "momentum_buffer" (SGD and RMSprop, with momentum), "sum"
  // (Adagrad), "square_avg" (RMSprop; if centered also "grad_avg").
  struct State {
    std::string parameter;
    std::string name;
    at::Tensor tensor;  // the one that is used: copying into it restores it
  };

  virtual ~Optimizer() = default;

  // One update from the gradients of all parameters, in the order of MakeOptimizer's and in their
  // dtypes. They may be changed.
  void Step(const std::vector<at::Tensor>& gradients);

  // Of the parameters outside of all groups, for the next update.
  double lr() const { return lr_; }

  // The whole state is States() and updates(), the number of updates made; the schedule follows
  // from the latter.
  std::vector<State> States() const;
  int64_t updates() const { return updates_; }
  void SetUpdates(int64_t updates);

 protected:
  struct Group {
    double configured_lr = 0;
    double lr = 0;  // of the next update
    double weight_decay = 0;
    std::vector<size_t> places;  // of its parameters among all
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters;
    std::vector<std::vector<at::Tensor>> state;  // of each of state_names_, one per parameter
  };

  Optimizer(const OptimizerConfig& config, const LrSchedule& schedule,
            const std::vector<NamedTensor>& parameters, std::vector<std::string> state_names);

  // With updates() already counting this one, and without autograd.
  virtual void Update(Group& group, const std::vector<at::Tensor>& gradients) = 0;

  OptimizerConfig config_;  // betas as the schedule has them
  std::vector<Group> groups_;

 private:
  void ApplySchedule();

  LrSchedule schedule_;
  std::vector<std::string> state_names_;
  int64_t updates_ = 0;
  double lr_ = 0;
};

// State starts at zero (Adagrad's at its initial value). Throws kBadInput where a group of `config`
// takes no parameter.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config, const LrSchedule& schedule,
                                         const std::vector<NamedTensor>& parameters);

// "AdamW": tells optimizers apart whose states mean different things.
const char* OptimizerTypeName(OptimizerConfig::Type type);

}  // namespace dslaunch
