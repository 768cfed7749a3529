// The built-in models, and what the trainer needs of any model.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <memory>

#include "trainer/config/recipe.h"

namespace dslaunch {

// Parameters are named by their module path ("fc1.weight"), as in PyTorch. Modules are registered
// in the order that draws the same initial weights as the same model in Python under the same
// torch.manual_seed.
class Model : public torch::nn::Module {
 public:
  // images [B, 1, H, W] -> logits [B, classes]
  virtual at::Tensor forward(const at::Tensor& images) = 0;
};

// One hidden layer: 784-128-10 on 28 x 28 images.
class Mlp : public Model {
 public:
  Mlp(int64_t inputs, int64_t hidden, int64_t classes);
  at::Tensor forward(const at::Tensor& images) override;

 private:
  torch::nn::Linear fc1_, fc2_;
};

// Two 3 x 3 convolutions, each halved by max-pooling, and two linear layers.
class Cnn : public Model {
 public:
  Cnn(int64_t height, int64_t width, int64_t hidden, int64_t classes);
  at::Tensor forward(const at::Tensor& images) override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
};

// Draws initial weights from the default generator. Throws kBadInput for images too small for the
// model.
std::shared_ptr<Model> MakeModel(const ModelConfig& config, int64_t height, int64_t width);

}  // namespace dslaunch
