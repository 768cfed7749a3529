// ResNet-18 with torchvision's layout and names (conv1, bn1, layer1.0.conv1 ... fc).
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "dslaunch/model.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Draws the weights that torchvision's constructor draws under the same seed: layers draw as they
// are constructed (in a block the shortcut's convolution first), then every convolution again
// (Kaiming normal, fan out) in the order of modules().
class Resnet18 : public Model {
 public:
  // input_shape: {C, H, W}. With both sides of at most 64 pixels the stem is the one for small
  // images (recipe.h).
  Resnet18(const Resnet18Config& config, const std::vector<int64_t>& input_shape);
  // float [B, C, H, W] -> [B, num_classes]
  at::Tensor forward(const at::Tensor& images) override;
  std::vector<ModelLayer> Layers() override;  // the stem, each block, and the classifier

 private:
  bool small_images_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Sequential layer1_, layer2_, layer3_, layer4_;
  torch::nn::Linear fc_;
};

}  // namespace dslaunch
