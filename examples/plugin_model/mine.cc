// A custom model for `dslaunch train`: a multilayer perceptron with residual hidden layers.
#include <dslaunch/plugin.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>

class Mine : public dslaunch::Model {
 public:
  explicit Mine(const dslaunch::PluginInput& input) {
    int64_t inputs = 1;
    for (const int64_t size : input.input_shape) inputs *= size;
    const auto depth = static_cast<int64_t>(input.Number("depth"));
    const auto width = static_cast<int64_t>(input.Number("width"));
    if (depth < 1 || width < 1) throw std::invalid_argument("depth and width must be at least 1");
    first = register_module("first", torch::nn::Linear(inputs, width));
    hidden = register_module("hidden", torch::nn::ModuleList());
    for (int64_t i = 0; i < depth; ++i) hidden->push_back(torch::nn::Linear(width, width));
    last = register_module("last", torch::nn::Linear(width, 10));
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = at::relu(first(images.flatten(1)));
    for (const auto& layer : *hidden) x = x + at::relu(layer->as<torch::nn::Linear>()->forward(x));
    return last(x);
  }

 private:
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::ModuleList hidden{nullptr};
};

DSLAUNCH_PLUGIN(Mine)
