#include "trainer/models/models.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr int64_t kConv1Channels = 8;
constexpr int64_t kConv2Channels = 16;

// What one 3 x 3 convolution without padding and one halving leave of a side.
int64_t AfterBlock(int64_t side) { return (side - 2) / 2; }

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
  Cnn(int64_t channels, int64_t height, int64_t width, int64_t hidden, int64_t classes);
  at::Tensor forward(const at::Tensor& images) override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
};

Mlp::Mlp(int64_t inputs, int64_t hidden, int64_t classes)
    : fc1_(register_module("fc1", torch::nn::Linear(inputs, hidden))),
      fc2_(register_module("fc2", torch::nn::Linear(hidden, classes))) {}

at::Tensor Mlp::forward(const at::Tensor& images) {
  return fc2_(at::relu(fc1_(images.flatten(1))));
}

Cnn::Cnn(int64_t channels, int64_t height, int64_t width, int64_t hidden, int64_t classes)
    : conv1_(register_module(
          "conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, kConv1Channels, 3)))),
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

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

}  // namespace

std::shared_ptr<Model> MakeModel(const ModelConfig& config,
                                 const std::vector<int64_t>& input_shape) {
  if (const auto* mlp = std::get_if<MlpConfig>(&config)) {
    return std::make_shared<Mlp>(Product(input_shape), mlp->hidden_size, mlp->num_classes);
  }
  const CnnConfig& cnn = std::get<CnnConfig>(config);
  const int64_t height = input_shape[1], width = input_shape[2];
  if (AfterBlock(AfterBlock(height)) < 1 || AfterBlock(AfterBlock(width)) < 1) {
    throw TrainError(ExitCode::kBadInput,
                     "model.type cnn needs images of at least 10 x 10 pixels; these are " +
                         std::to_string(height) + " x " + std::to_string(width));
  }
  return std::make_shared<Cnn>(input_shape[0], height, width, cnn.hidden_size, cnn.num_classes);
}

}  // namespace dslaunch
