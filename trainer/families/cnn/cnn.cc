// Implements a convolutional model: two 3 x 3 convolutions, each followed by max-pooling that
// halves the sides, and two linear layers.
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/base/train_error.h"
#include "trainer/families/cnn/cnn_config.h"
#include "trainer/nn/image_shape.h"
#include "trainer/nn/run_layers.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {
namespace {

constexpr int64_t kConv1Channels = 8;
constexpr int64_t kConv2Channels = 16;

torch::nn::Conv2d Conv(int64_t in, int64_t out) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, /*kernel_size=*/3));
}

// Returns the length of a side after a 3 x 3 convolution without padding and a pooling that halves
// the side.
int64_t AfterBlock(int64_t side) { return (side - 2) / 2; }

// Returns the number of inputs of the first linear layer. Throws kBadInput if the image is too
// small.
int64_t Features(const ImageShape& image) {
  const int64_t height = AfterBlock(AfterBlock(image.height));
  const int64_t width = AfterBlock(AfterBlock(image.width));
  if (height < 1 || width < 1) {
    throw TrainError(ExitCode::kBadInput,
                     "model.type cnn needs images of at least 10 x 10 pixels; these are " +
                         std::to_string(image.height) + " x " + std::to_string(image.width));
  }
  return kConv2Channels * height * width;
}

class Cnn : public Model {
 public:
  // Makes a model for images of `input_shape`, [C, H, W]. Throws kBadInput for images smaller than
  // 10 x 10.
  Cnn(const CnnConfig& config, const std::vector<int64_t>& input_shape);
  // Maps float [B, C, H, W] to [B, num_classes].
  at::Tensor forward(const at::Tensor& images) override;
  std::vector<ModelLayer> Layers() override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
};

Cnn::Cnn(const CnnConfig& config, const std::vector<int64_t>& input_shape)
    : conv1_(register_module("conv1",
                             Conv(ToImageShape(input_shape, "cnn").channels, kConv1Channels))),
      conv2_(register_module("conv2", Conv(kConv1Channels, kConv2Channels))),
      fc1_(register_module("fc1", torch::nn::Linear(Features(ToImageShape(input_shape, "cnn")),
                                                    config.hidden_size))),
      fc2_(register_module("fc2", torch::nn::Linear(config.hidden_size, config.num_classes))) {}

at::Tensor Cnn::forward(const at::Tensor& images) { return RunLayers(Layers(), images); }

std::vector<ModelLayer> Cnn::Layers() {
  const auto block = [](torch::nn::Conv2d& conv) {
    return [&conv](const at::Tensor& x) { return at::max_pool2d(at::relu(conv(x)), 2); };
  };
  return {
      {"conv1", {conv1_.ptr()}, block(conv1_)},
      {"conv2", {conv2_.ptr()}, block(conv2_)},
      {"fc1", {fc1_.ptr()}, [this](const at::Tensor& x) { return at::relu(fc1_(x.flatten(1))); }},
      {"fc2", {fc2_.ptr()}, [this](const at::Tensor& x) { return fc2_(x); }}};
}

}  // namespace

std::shared_ptr<Model> MakeCnn(const ModelConfig& config, const std::vector<int64_t>& input_shape,
                               const TensorParallel&) {
  return std::make_shared<Cnn>(config.As<CnnConfig>(), input_shape);
}

}  // namespace dslaunch
