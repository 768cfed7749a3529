// Optimizers on LibTorch's fused kernels: one call updates all parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/recipe.h"

namespace dslaunch {

// One kind of state, named as in PyTorch ("exp_avg"): a tensor for each parameter, in their order.
struct OptimizerSlot {
  std::string name;
  std::vector<at::Tensor> tensors;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update from the parameters' gradients, all of which must be defined.
  virtual void Step() = 0;

  // The state itself, not a copy: what is written into it counts.
  virtual std::vector<OptimizerSlot> State() const = 0;

  // Call it after State() was overwritten with that of a run that had made `updates` of them.
  virtual void Resume(int64_t updates) = 0;

  double lr() const { return lr_; }

 protected:
  Optimizer(std::vector<at::Tensor> parameters, double lr)
      : parameters_(std::move(parameters)), lr_(lr) {}
  std::vector<at::Tensor> Gradients() const;

  std::vector<at::Tensor> parameters_;
  double lr_;
};

// State starts at zero. Parameters are shared with the model.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config,
                                         std::vector<at::Tensor> parameters);

}  // namespace dslaunch
