#pragma once

#include <vector>

#include "dslaunch/model.h"

namespace dslaunch {

// Returns the output of a model whose forward consists only of `layers`, which are run in order,
// for the input `x`.
inline at::Tensor RunLayers(const std::vector<ModelLayer>& layers, at::Tensor x) {
  for (const ModelLayer& layer : layers) x = layer.forward(x);
  return x;
}

}  // namespace dslaunch
