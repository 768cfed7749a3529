// Layer normalization (Ba, Kiros and Hinton 2016), with the residual connection before it.
#pragma once

#include <torch/nn/modules/normalization.h>

namespace dslaunch {

// layer->forward(x), of a layer with weight and bias over the last dimension. By a kernel of the
// device's own where it has one: other bits, less time.
at::Tensor ApplyLayerNorm(const torch::nn::LayerNorm& layer, const at::Tensor& x);

struct NormalizedSum {
  at::Tensor sum, normalized;
};
// x + branch, and ApplyLayerNorm(layer, x + branch). `branch` may be undefined: then sum is x, and
// the gradients that x gets by way of both results are added up in one pass.
NormalizedSum AddAndNormalize(const torch::nn::LayerNorm& layer, const at::Tensor& x,
                              const at::Tensor& branch = {});

}  // namespace dslaunch
