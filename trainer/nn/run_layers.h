#pragma once

#include <vector>

#include "dslaunch/model.h"

namespace dslaunch {

// The forward pass of a model that is its layers and nothing else.
inline at::Tensor RunLayers(const std::vector<ModelLayer>& layers, at::Tensor x) {
  for (const ModelLayer& layer : layers) x = layer.forward(x);
  return x;
}

}  // namespace dslaunch
