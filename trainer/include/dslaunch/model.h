// What the trainer needs of a model, its own ones and users'.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dslaunch {

// A piece of a model whose pieces run one after the other.
struct ModelLayer {
  std::string name;  // "transformer.h.3": for messages, and for partition type:REGEX
  // Whose parameters and buffers it reads: all below these, which are modules of the model. One may
  // be in several layers (tied weights).
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::function<at::Tensor(const at::Tensor& input)> forward;
};

// Parameters are named by their module path ("fc1.weight"), as in PyTorch.
class Model : public torch::nn::Module {
 public:
  // inputs as the data set gives them (images: float [B, C, H, W]; tokens: int64 [B, T]) ->
  // output, by default logits [B, classes] or [B, T, vocabulary].
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  // The same as forward, in pieces, so that a pipeline can be made of them; empty: it cannot. The
  // first takes `inputs`. They refer to this model, and must not outlive it.
  virtual std::vector<ModelLayer> Layers() { return {}; }

  // targets: int64 [B] or [B, T], -100 where there is none. A scalar in fp32: the mean over all
  // targets, or with at::Reduction::Sum their sum.
  virtual at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets,
                          int64_t reduction = at::Reduction::Mean) const {
    return at::cross_entropy_loss(output.flatten(0, -2).to(at::kFloat), targets.flatten(),
                                  /*weight=*/{}, reduction, /*ignore_index=*/-100);
  }
};

}  // namespace dslaunch
