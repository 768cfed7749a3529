#include "trainer/models/models.h"

#include <ATen/ATen.h>

#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr int64_t kConv1Channels = 8;
constexpr int64_t kConv2Channels = 16;

// What one 3 x 3 convolution without padding and one halving leave of a side.
int64_t AfterBlock(int64_t side) { return (side - 2) / 2; }

}  // namespace

Mlp::Mlp(int64_t inputs, int64_t hidden, int64_t classes)
    : fc1_(register_module("fc1", torch::nn::Linear(inputs, hidden))),
      fc2_(register_module("fc2", torch::nn::Linear(hidden, classes))) {}

at::Tensor Mlp::forward(const at::Tensor& images) {
  return fc2_(at::relu(fc1_(images.flatten(1))));
}

Cnn::Cnn(int64_t height, int64_t width, int64_t hidden, int64_t classes)
    : conv1_(register_module("conv1",
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(1, kConv1Channels, 3)))),
      conv2_(register_module(
          "conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(kConv1Channels, kConv2Channels, 3)))),
      fc1_(
          register_module("fc1", torch::nn::Linear(kConv2Channels * AfterBlock(AfterBlock(height)) *
                                                       AfterBlock(AfterBlock(width)),
                                                   hidden))),
      fc2_(register_module("fc2", torch::nn::Linear(hidden, classes))) {}

at::Tensor Cnn::forward(const at::Tensor& images) {
  at::Tensor x = at::max_pool2d(at::relu(conv1_(images)), 2);
  x = at::max_pool2d(at::relu(conv2_(x)), 2);
  return fc2_(at::relu(fc1_(x.flatten(1))));
}

std::shared_ptr<Model> MakeModel(const ModelConfig& config, int64_t height, int64_t width) {
  if (config.type == ModelConfig::Type::kMlp) {
    return std::make_shared<Mlp>(height * width, config.hidden_size, config.num_classes);
  }
  if (AfterBlock(AfterBlock(height)) < 1 || AfterBlock(AfterBlock(width)) < 1) {
    throw TrainError(ExitCode::kBadInput,
                     "model.type cnn needs images of at least 10 x 10 pixels; these are " +
                         std::to_string(height) + " x " + std::to_string(width));
  }
  return std::make_shared<Cnn>(height, width, config.hidden_size, config.num_classes);
}

}  // namespace dslaunch
