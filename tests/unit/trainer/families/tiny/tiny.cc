#include <torch/nn/modules/linear.h>

#include "dslaunch/model.h"
#include "tests/unit/trainer/families/tiny/tiny_config.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {
namespace {

class Net : public torch::nn::Module {
 public:
  Net(const TinyConfig& config, int64_t inputs)
      : first(register_module("first", torch::nn::Linear(inputs, config.width))),
        second(register_module("second", torch::nn::Linear(config.width, config.num_classes))) {}
  torch::nn::Linear first, second;
};

class Tiny : public Model {
 public:
  Tiny(const TinyConfig& config, int64_t inputs)
      : net_(register_module("net", std::make_shared<Net>(config, inputs))) {}
  at::Tensor forward(const at::Tensor& inputs) override {
    return net_->second(at::relu(net_->first(inputs)));
  }
  std::vector<ModelLayer> Layers() override {
    return {
        {"first",
         {net_->first.ptr()},
         [this](const at::Tensor& x) { return at::relu(net_->first(x)); }},
        {"second", {net_->second.ptr()}, [this](const at::Tensor& x) { return net_->second(x); }}};
  }

 private:
  std::shared_ptr<Net> net_;
};

}  // namespace

std::shared_ptr<Model> MakeTiny(const ModelConfig& config, const std::vector<int64_t>& input_shape,
                                const TensorParallel&) {
  return std::make_shared<Tiny>(config.As<TinyConfig>(), input_shape.at(0));
}

}  // namespace dslaunch
