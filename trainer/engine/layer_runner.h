// A model's forward pass layer by layer: which layers are computed again together
// (activation_checkpointing.number_checkpoints), and where each one's random numbers come from.
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
  // Of `parts` parts of `module` (one for each layer if it has fewer), as equal in their number of
  // layers as they can be, only the inputs are kept; 0: all is kept. Throws TrainError kBadInput
  // for parts of a module that is neither a torch::nn::Sequential nor a Model with layers.
  LayerRunner(torch::nn::Module& module, int64_t parts);

  bool knows_layers() const { return !layers_->empty(); }

  // The forward pass of a module whose layers are known. With a seed layer i draws its random
  // numbers from LayerSeed(seed, i), also when it is computed again.
  at::Tensor Forward(at::Tensor input, std::optional<uint64_t> seed = {}) const;

 private:
  using Layer = std::function<at::Tensor(const at::Tensor& input)>;

  static std::vector<Layer> LayersOf(torch::nn::Module& module);

  torch::nn::Module& module_;
  std::shared_ptr<const std::vector<Layer>> layers_;  // graphs have them too
  size_t parts_;
};

}  // namespace dslaunch
