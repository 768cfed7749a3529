// Implements a multilayer perceptron with one hidden layer, such as 784-128-10 for 28 x 28 images.
#include <c10/util/accumulate.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/families/mlp/mlp_config.h"
#include "trainer/nn/run_layers.h"
#include "trainer/nn/split_backward.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {
namespace {

class Mlp : public Model {
 public:
  // Makes a model for samples of any `input_shape`, because samples are flattened.
  Mlp(const MlpConfig& config, const std::vector<int64_t>& input_shape);
  // Maps float [B, ...] to [B, num_classes].
  at::Tensor forward(const at::Tensor& samples) override;
  std::vector<ModelLayer> Layers() override;

 private:
  torch::nn::Linear fc1_, fc2_;
};

Mlp::Mlp(const MlpConfig& config, const std::vector<int64_t>& input_shape)
    : fc1_(register_module(
          "fc1", torch::nn::Linear(c10::multiply_integers(input_shape), config.hidden_size))),
      fc2_(register_module("fc2", torch::nn::Linear(config.hidden_size, config.num_classes))) {}

at::Tensor Mlp::forward(const at::Tensor& samples) { return RunLayers(Layers(), samples); }

std::vector<ModelLayer> Mlp::Layers() {
  const auto linear = [](const torch::nn::Linear& layer, const at::Tensor& x) {
    return ApplyLinear(x, layer->weight, layer->bias);
  };
  return {{"fc1",
           {fc1_.ptr()},
           [this, linear](const at::Tensor& x) { return at::relu(linear(fc1_, x.flatten(1))); }},
          {"fc2", {fc2_.ptr()}, [this, linear](const at::Tensor& x) { return linear(fc2_, x); }}};
}

}  // namespace

std::shared_ptr<Model> MakeMlp(const ModelConfig& config, const std::vector<int64_t>& input_shape,
                               const TensorParallel&) {
  return std::make_shared<Mlp>(config.As<MlpConfig>(), input_shape);
}

}  // namespace dslaunch
