#include "trainer/engine/layer_runner.h"

#include <torch/nn/modules/container/sequential.h>

#include <algorithm>

#include "dslaunch/model.h"
#include "dslaunch/recompute.h"
#include "trainer/base/seed.h"
#include "trainer/base/train_error.h"
#include "trainer/nn/seed_generators.h"

namespace dslaunch {

std::vector<LayerRunner::Layer> LayerRunner::LayersOf(torch::nn::Module& module) {
  std::vector<Layer> layers;
  if (auto* const sequential = dynamic_cast<torch::nn::SequentialImpl*>(&module)) {
    for (torch::nn::AnyModule& layer : *sequential) {
      layers.push_back([layer](const at::Tensor& x) mutable { return layer.forward(x); });
    }
  } else if (auto* const model = dynamic_cast<Model*>(&module)) {
    for (ModelLayer& layer : model->Layers()) layers.push_back(std::move(layer.forward));
  }
  return layers;
}

LayerRunner::LayerRunner(torch::nn::Module& module, int64_t parts)
    : module_(module), layers_(std::make_shared<const std::vector<Layer>>(LayersOf(module))) {
  if (parts > 0 && !knows_layers()) {
    RefuseInput("activation_checkpointing.number_checkpoints is " + std::to_string(parts) +
                ", but the engine does not know the layers of this model; use a "
                "torch::nn::Sequential or a dslaunch::Model with Layers(), or leave it out and "
                "call dslaunch::Recompute in the model's forward");
  }
  parts_ = std::min(static_cast<size_t>(parts), layers_->size());
}

at::Tensor LayerRunner::Forward(at::Tensor input, std::optional<uint64_t> seed) const {
  const auto run = [layers = layers_, seed](size_t from, size_t to, at::Tensor x) {
    for (size_t i = from; i < to; ++i) {
      if (seed) SeedGenerators(x.device(), LayerSeed(*seed, i));
      x = (*layers)[i](x);
    }
    return x;
  };
  const size_t layers = layers_->size();
  if (parts_ == 0) return run(0, layers, std::move(input));
  const std::vector<at::Tensor> buffers = module_.buffers();
  for (size_t part = 0; part < parts_; ++part) {
    const size_t from = part * layers / parts_, to = (part + 1) * layers / parts_;
    input = Recompute([run, from, to](const at::Tensor& x) { return run(from, to, x); }, input,
                      buffers);
  }
  return input;
}

}  // namespace dslaunch
