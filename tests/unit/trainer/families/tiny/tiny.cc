#include <cmath>
#include <optional>

#include "dslaunch/model.h"
#include "tests/unit/trainer/families/tiny/tiny_config.h"
#include "trainer/nn/split_backward.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/nn/tensor_parallel/exchanges.h"

namespace dslaunch {
namespace {

// A linear layer that is divided by its outputs or by its inputs.
class Linear : public DividedModule {
 public:
  Linear(int64_t in, int64_t out, const std::optional<Cut>& outputs,
         const std::optional<Cut>& inputs)
      : weight(RegisterPart("weight", Draw({out, in}, in), outputs ? outputs : inputs)),
        bias(RegisterPart("bias", Draw({out}, in), outputs)) {}
  at::Tensor weight, bias;

 private:
  static at::Tensor Draw(at::IntArrayRef shape, int64_t in) {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    return at::empty(shape).uniform_(-bound, bound);
  }
};

class Net : public torch::nn::Module {
 public:
  Net(const TinyConfig& config, int64_t inputs, const TensorParallel& tensor)
      : first(register_module(
            "first", std::make_shared<Linear>(inputs, config.width,
                                              EqualCut(tensor, 0, config.width), std::nullopt))),
        second(register_module(
            "second", std::make_shared<Linear>(config.width, config.num_classes, std::nullopt,
                                               EqualCut(tensor, 1, config.width)))) {}
  std::shared_ptr<Linear> first, second;
};

class Tiny : public Model {
 public:
  Tiny(const TinyConfig& config, int64_t inputs, const TensorParallel& tensor)
      : tensor_(tensor),
        net_(register_module("net", std::make_shared<Net>(config, inputs, tensor))) {}
  at::Tensor forward(const at::Tensor& inputs) override { return Second(First(inputs)); }
  std::vector<ModelLayer> Layers() override {
    return {{"first", {net_->first}, [this](const at::Tensor& x) { return First(x); }},
            {"second", {net_->second}, [this](const at::Tensor& x) { return Second(x); }}};
  }

 private:
  at::Tensor First(const at::Tensor& x) const {
    return at::relu(ApplyLinear(EnterRegion(x, tensor_), net_->first->weight, net_->first->bias));
  }
  at::Tensor Second(const at::Tensor& x) const {
    return LeaveRegionAndAdd(ApplyLinear(x, net_->second->weight), net_->second->bias, tensor_);
  }

  TensorParallel tensor_;
  std::shared_ptr<Net> net_;
};

}  // namespace

std::shared_ptr<Model> MakeTiny(const ModelConfig& config, const std::vector<int64_t>& input_shape,
                                const TensorParallel& tensor) {
  return std::make_shared<Tiny>(config.As<TinyConfig>(), input_shape.at(0), tensor);
}

}  // namespace dslaunch
