// What the trainer needs of a model, its own ones and users'.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

namespace dslaunch {

// Parameters are named by their module path ("fc1.weight"), as in PyTorch.
class Model : public torch::nn::Module {
 public:
  // inputs as the data set gives them (images: float [B, C, H, W]; tokens: int64 [B, T]) ->
  // output, by default logits [B, classes] or [B, T, vocabulary].
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  // targets: int64 [B] or [B, T], -100 where there is none. A scalar in fp32: the mean over all
  // targets, or with at::Reduction::Sum their sum.
  virtual at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets,
                          int64_t reduction = at::Reduction::Mean) const {
    return at::cross_entropy_loss(output.flatten(0, -2).to(at::kFloat), targets.flatten(),
                                  /*weight=*/{}, reduction, /*ignore_index=*/-100);
  }
};

}  // namespace dslaunch
