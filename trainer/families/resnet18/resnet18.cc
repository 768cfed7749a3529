// Implements ResNet-18 with torchvision's layout and parameter names (conv1, bn1, layer1.0.conv1
// ... fc).
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/families/resnet18/resnet18_config.h"
#include "trainer/nn/image_shape.h"
#include "trainer/nn/run_layers.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {
namespace {

constexpr int64_t kStemChannels = 64;
constexpr int64_t kMaxSmallSide = 64;  // maximum pixels of both sides of a small image

torch::nn::Conv2d Conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// A residual block: two 3 x 3 convolutions, and a shortcut around both. If the block changes the
// shape, the shortcut is a 1 x 1 convolution.
class BasicBlock : public torch::nn::Module {
 public:
  BasicBlock(int64_t in, int64_t out, int64_t stride) {
    if (stride != 1 || in != out) {
      downsample_ = torch::nn::Sequential(Conv(in, out, 1, stride), torch::nn::BatchNorm2d(out));
    }
    conv1_ = register_module("conv1", Conv(in, out, 3, stride));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(out));
    conv2_ = register_module("conv2", Conv(out, out, 3, 1));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(out));
    if (downsample_) register_module("downsample", downsample_);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor out = bn1_(conv1_(x)).relu_();
    out = bn2_(conv2_(out));
    out += downsample_ ? downsample_->forward(x) : x;
    return out.relu_();
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
  torch::nn::Sequential downsample_{nullptr};  // null if the shortcut is the identity
};

torch::nn::Sequential Stage(int64_t in, int64_t out, int64_t stride) {
  torch::nn::Sequential stage;
  stage->push_back(std::make_shared<BasicBlock>(in, out, stride));
  stage->push_back(std::make_shared<BasicBlock>(out, out, 1));
  return stage;
}

// ResNet-18 with the weights that torchvision's constructor draws under the same seed. Layers draw
// weights when they are constructed (in a block, the shortcut's convolution first). Then every
// convolution draws its weights again (Kaiming normal, fan out) in the order of modules().
class Resnet18 : public Model {
 public:
  // Makes a model for images of `input_shape`, [C, H, W]. If both sides have at most 64 pixels, the
  // stem is the stem for small images (resnet18_config.h).
  Resnet18(const Resnet18Config& config, const std::vector<int64_t>& input_shape);
  // Maps float [B, C, H, W] to [B, num_classes].
  at::Tensor forward(const at::Tensor& images) override;
  std::vector<ModelLayer> Layers() override;  // stem, each block, and classifier

 private:
  bool small_images_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Sequential layer1_, layer2_, layer3_, layer4_;
  torch::nn::Linear fc_;
};

Resnet18::Resnet18(const Resnet18Config& config, const std::vector<int64_t>& input_shape)
    : conv1_(nullptr),
      bn1_(nullptr),
      layer1_(nullptr),
      layer2_(nullptr),
      layer3_(nullptr),
      layer4_(nullptr),
      fc_(nullptr) {
  const ImageShape image = ToImageShape(input_shape, "resnet18");
  small_images_ = std::max(image.height, image.width) <= kMaxSmallSide;
  conv1_ = register_module("conv1", small_images_ ? Conv(image.channels, kStemChannels, 3, 1)
                                                  : Conv(image.channels, kStemChannels, 7, 2));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(kStemChannels));
  layer1_ = register_module("layer1", Stage(kStemChannels, 64, 1));
  layer2_ = register_module("layer2", Stage(64, 128, 2));
  layer3_ = register_module("layer3", Stage(128, 256, 2));
  layer4_ = register_module("layer4", Stage(256, 512, 2));
  fc_ = register_module("fc", torch::nn::Linear(512, config.num_classes));
  for (const auto& module : modules(/*include_self=*/false)) {
    if (const auto* conv = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
}

at::Tensor Resnet18::forward(const at::Tensor& images) { return RunLayers(Layers(), images); }

std::vector<ModelLayer> Resnet18::Layers() {
  std::vector<ModelLayer> layers;
  layers.push_back({"stem", {conv1_.ptr(), bn1_.ptr()}, [this](const at::Tensor& images) {
                      const at::Tensor x = bn1_(conv1_(images)).relu_();
                      return small_images_ ? x
                                           : at::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2,
                                                            /*padding=*/1);
                    }});
  const std::pair<std::string, torch::nn::Sequential> stages[] = {
      {"layer1", layer1_}, {"layer2", layer2_}, {"layer3", layer3_}, {"layer4", layer4_}};
  for (const auto& [name, stage] : stages) {
    for (size_t i = 0; i < stage->size(); ++i) {
      const auto block = stage->ptr<BasicBlock>(i);
      layers.push_back({name + "." + std::to_string(i), {block}, [block](const at::Tensor& x) {
                          return block->forward(x);
                        }});
    }
  }
  layers.push_back({"fc", {fc_.ptr()}, [this](const at::Tensor& x) {
                      return fc_(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
                    }});
  return layers;
}

}  // namespace

std::shared_ptr<Model> MakeResnet18(const ModelConfig& config,
                                    const std::vector<int64_t>& input_shape,
                                    const TensorParallel&) {
  return std::make_shared<Resnet18>(config.As<Resnet18Config>(), input_shape);
}

}  // namespace dslaunch
