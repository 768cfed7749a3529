// activation_checkpointing.number_checkpoints: which layers are computed again together.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace dslaunch {

// Some layers of a model in a row.
using LayerRun = std::function<at::Tensor(const at::Tensor& input)>;

// `count` parts of `module` (one for each layer if it has fewer), as equal in their number of
// layers as they can be; one after the other they are its forward pass. Null for a `count` of 0.
// They refer to the module and must not outlive it. Throws TrainError kBadInput for a module that
// is neither a torch::nn::Sequential nor a Model with layers.
std::shared_ptr<const std::vector<LayerRun>> CutForRecompute(torch::nn::Module& module,
                                                             int64_t count);

}  // namespace dslaunch
