// A multilayer perceptron with one hidden layer: 784-128-10 on 28 x 28 images.
#pragma once

#include <torch/nn/modules/linear.h>

#include <vector>

#include "dslaunch/model.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

class Mlp : public Model {
 public:
  // Of any input_shape; samples are flattened.
  Mlp(const MlpConfig& config, const std::vector<int64_t>& input_shape);
  // float [B, ...] -> [B, num_classes]
  at::Tensor forward(const at::Tensor& samples) override;
  std::vector<ModelLayer> Layers() override;

 private:
  torch::nn::Linear fc1_, fc2_;
};

}  // namespace dslaunch
