// Optimizers on LibTorch's fused kernels: one call updates all parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "trainer/config/recipe.h"

namespace dslaunch {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update from the parameters' gradients, all of which must be defined.
  virtual void Step() = 0;

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
