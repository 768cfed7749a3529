// Implements layer normalization (Ba, Kiros and Hinton 2016), optionally with the preceding
// residual connection.
#pragma once

#include <torch/nn/modules/normalization.h>

#include "trainer/nn/normalized_sum.h"

namespace dslaunch {

// The parameters of a layer norm over the last dimension.
struct LayerNormWeights {
  LayerNormWeights(const torch::nn::LayerNorm& layer)
      : weight(layer->weight), bias(layer->bias), epsilon(layer->options.eps()) {}

  at::Tensor weight, bias;
  double epsilon;
};

// Returns layer->forward(x). Uses the device's kernel if there is one, which is faster but rounds
// differently.
at::Tensor ApplyLayerNorm(const LayerNormWeights& layer, const at::Tensor& x);

// Returns x + branch and ApplyLayerNorm(layer, x + branch). If `branch` is undefined, `sum` is x.
// The gradients of x through both results are added in one pass.
NormalizedSum AddAndNormalize(const LayerNormWeights& layer, const at::Tensor& x,
                              const at::Tensor& branch = {});

}  // namespace dslaunch
