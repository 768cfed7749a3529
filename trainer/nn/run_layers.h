#pragma once

#include <vector>

#include "dslaunch/model.h"

namespace dslaunch {

// Runs the forward pass of a model whose forward consists only of its layers, in order.
inline at::Tensor RunLayers(const std::vector<ModelLayer>& layers, at::Tensor x) {
  for (const ModelLayer& layer : layers) x = layer.forward(x);
  return x;
}

}  // namespace dslaunch
