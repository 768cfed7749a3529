#include "trainer/engine/recomputed_parts.h"

#include <torch/nn/modules/container/sequential.h>

#include <algorithm>

#include "dslaunch/model.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

std::vector<LayerRun> LayersOf(torch::nn::Module& module) {
  std::vector<LayerRun> layers;
  if (auto* const sequential = dynamic_cast<torch::nn::SequentialImpl*>(&module)) {
    for (torch::nn::AnyModule& layer : *sequential) {
      layers.push_back([layer](const at::Tensor& x) mutable { return layer.forward(x); });
    }
  } else if (auto* const model = dynamic_cast<Model*>(&module)) {
    for (ModelLayer& layer : model->Layers()) layers.push_back(std::move(layer.forward));
  }
  return layers;
}

}  // namespace

std::shared_ptr<const std::vector<LayerRun>> CutForRecompute(torch::nn::Module& module,
                                                             int64_t count) {
  if (count == 0) return nullptr;
  const std::vector<LayerRun> layers = LayersOf(module);
  if (layers.empty()) {
    RefuseInput("activation_checkpointing.number_checkpoints is " + std::to_string(count) +
                ", but the engine does not know the layers of this model; use a "
                "torch::nn::Sequential or a dslaunch::Model with Layers(), or leave it out and "
                "call dslaunch::Recompute in the model's forward");
  }
  const size_t parts = std::min(static_cast<size_t>(count), layers.size());
  auto cut = std::make_shared<std::vector<LayerRun>>();
  for (size_t part = 0; part < parts; ++part) {
    const auto from = layers.begin() + static_cast<ptrdiff_t>(part * layers.size() / parts);
    const auto to = layers.begin() + static_cast<ptrdiff_t>((part + 1) * layers.size() / parts);
    cut->push_back([run = std::vector<LayerRun>(from, to)](at::Tensor x) {
      for (const LayerRun& layer : run) x = layer(x);
      return x;
    });
  }
  return cut;
}

}  // namespace dslaunch
