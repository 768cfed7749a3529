// Defines the interface of models that `dslaunch train` trains.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dslaunch {

// One layer of a model whose layers run in sequence.
struct ModelLayer {
  // layer's name in messages and for partition type:REGEX, such as "transformer.h.3".
  std::string name;
  // The modules of the model whose parameters and buffers, including those of their submodules, the
  // layer reads. A module may be in several layers (tied weights).
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::function<at::Tensor(const at::Tensor& input)> forward;
};

// A model that `dslaunch train` can train. Parameters are named by their module path
// ("fc1.weight"), as in PyTorch.
class Model : public torch::nn::Module {
 public:
  // Returns the model's output for `inputs` of the data set (images: float [B, C, H, W]; tokens:
  // int64 [B, T]). With the default Loss the output is logits [B, classes] or [B, T, vocabulary].
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  // Returns the layers whose composition is forward, in order. Pipelines are built from them, and
  // `dslaunch train` runs them one by one, each with its own random numbers. An empty list disables
  // pipelines. The first layer takes `inputs`. The layers refer to this model and must not outlive
  // it.
  virtual std::vector<ModelLayer> Layers() { return {}; }

  // Returns the loss as a scalar in fp32: the mean over all targets, or the sum with
  // at::Reduction::Sum. `targets` is int64 [B] or [B, T], and -100 marks positions without a
  // target.
  virtual at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets,
                          int64_t reduction = at::Reduction::Mean) const {
    return at::cross_entropy_loss(output.flatten(0, -2).to(at::kFloat), targets.flatten(),
                                  /*weight=*/{}, reduction, /*ignore_index=*/-100);
  }

  // Returns the whole output if each rank of the tensor-parallel group has a part of it; `output`
  // is the result of forward. Collective over that group. Not differentiable.
  virtual at::Tensor WholeOutput(const at::Tensor& output) const { return output; }
};

}  // namespace dslaunch
