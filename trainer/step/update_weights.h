// The update of the weights in pieces, so that gradients that are converted, or that leave their
// device, take little memory.
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
  size_t begin = 0, end = 0;  // indices of the optimizer's parts
};

// Cuts consecutive parts, which have `elements`, into runs of at most `max_elements` together; a
// larger part is a piece of its own. Returns at least one piece, which is empty if there are no
// parts. Pure.
std::vector<UpdatePiece> CutUpdate(const std::vector<int64_t>& elements, int64_t max_elements);

// Multiplies gradients in place.
using GradientScaling = std::function<void(const std::vector<at::Tensor>& gradients)>;

// Updates the weights of states.parts() by `gradients`, one for each, all on one device, and makes
// the model follow. `scale` is applied to gradients in their own dtype or the weights' if that is
// wider; null: none. `skip`: see Optimizer::Step.
void UpdateWeights(const EngineConfig& config, ModelStates& states, Optimizer& optimizer,
                   const std::vector<at::Tensor>& gradients, const GradientScaling& scale,
                   const at::Tensor& skip = {});

}  // namespace dslaunch
