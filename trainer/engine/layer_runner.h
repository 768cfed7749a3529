// Runs a model's forward pass layer by layer: recomputes parts of it in the backward pass
// (activation_checkpointing.number_checkpoints), and seeds each layer's random numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace dslaunch {

// Refers to the module and must not outlive it. One thread.
class LayerRunner {
 public:
  // Keeps only the inputs of `parts` parts of `module` with nearly equal numbers of layers (one for
  // each layer if there are fewer); 0 keeps all activations. Throws TrainError kBadInput if `parts`
  // > 0 and the module is neither a torch::nn::Sequential nor a Model with layers.
  LayerRunner(torch::nn::Module& module, int64_t parts);

  bool knows_layers() const { return !layers_->empty(); }

  // Runs the forward pass. With a seed, layer i draws its random numbers from LayerSeed(seed, i),
  // also when it is recomputed. Precondition: knows_layers().
  at::Tensor Forward(at::Tensor input, std::optional<uint64_t> seed = {}) const;

 private:
  using Layer = std::function<at::Tensor(const at::Tensor& input)>;

  static std::vector<Layer> LayersOf(torch::nn::Module& module);

  torch::nn::Module& module_;
  std::shared_ptr<const std::vector<Layer>> layers_;  // shared with autograd's graphs
  size_t parts_;
};

}  // namespace dslaunch
