// Two 3 x 3 convolutions, each halved by max-pooling, and two linear layers.
#pragma once

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "dslaunch/model.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

class Cnn : public Model {
 public:
  // input_shape: {C, H, W}; smaller images than 10 x 10 are kBadInput.
  Cnn(const CnnConfig& config, const std::vector<int64_t>& input_shape);
  // float [B, C, H, W] -> [B, num_classes]
  at::Tensor forward(const at::Tensor& images) override;
  std::vector<ModelLayer> Layers() override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
};

}  // namespace dslaunch
