// Updates the weights in pieces, so that gradients that are converted or copied to another device
// take little memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/config/engine_config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/model_states.h"

namespace dslaunch {

struct UpdatePiece {
  size_t begin = 0, end = 0;  // range of indices of the optimizer's parts
};

// Cuts the parts into pieces of consecutive parts with at most `max_elements` elements together; a
// larger part is a separate piece. `elements` has the number of elements of each part. Returns at
// least one piece, which is empty if there are no parts. Pure function.
std::vector<UpdatePiece> CutUpdate(const std::vector<int64_t>& elements, int64_t max_elements);

// Multiplies `gradients` in place by a factor.
using GradientScaling = std::function<void(const std::vector<at::Tensor>& gradients)>;

// Updates the weights of states.parts() and copies them to the model. `gradients` has one gradient
// for each part, all on the same device. `scale` is applied to gradients in their own dtype, or in
// the weights' dtype if that is wider; null if gradients are not scaled. If `skip` is defined and
// its value is 1, the weights are not updated; only a replayable optimizer supports `skip`.
void UpdateWeights(const EngineConfig& config, ModelStates& states, Optimizer& optimizer,
                   const std::vector<at::Tensor>& gradients, const GradientScaling& scale,
                   const at::Tensor& skip = {});

}  // namespace dslaunch
