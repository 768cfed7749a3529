// Runs a model's forward pass layer by layer. Recomputes parts of it in the backward pass
// (activation_checkpointing.number_checkpoints), and seeds the random numbers of each layer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace dslaunch {

// Runs the layers of a module, which must outlive this object. Not thread-safe.
class LayerRunner {
 public:
  // Divides `module` into `parts` parts with nearly equal numbers of layers (at most one part per
  // layer), and keeps only the inputs of these parts; 0 keeps all activations. Throws TrainError
  // kBadInput if `parts` > 0 and the module is neither a torch::nn::Sequential nor a Model with
  // layers.
  LayerRunner(torch::nn::Module& module, int64_t parts);

  bool knows_layers() const { return !layers_->empty(); }

  // Runs the forward pass. With a seed, layer i draws its random numbers from LayerSeed(seed, i),
  // even when it is recomputed. Precondition: knows_layers() returns true.
  at::Tensor Forward(at::Tensor input, std::optional<uint64_t> seed = {}) const;

 private:
  using Layer = std::function<at::Tensor(const at::Tensor& input)>;

  static std::vector<Layer> LayersOf(torch::nn::Module& module);

  torch::nn::Module& module_;
  // Layers, which the graphs of autograd also own.
  std::shared_ptr<const std::vector<Layer>> layers_;
  size_t parts_;
};

}  // namespace dslaunch
