// Implements RMS normalization (Zhang and Sennrich 2019), optionally with the preceding residual
// connection.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/normalized_sum.h"

namespace dslaunch {

// Returns weight * x / sqrt(mean(x^2) + epsilon) over the last dimension, which has the size of
// `weight`. As in transformers' Llama, but unlike in at::rms_norm, the quotient is computed in fp32
// and rounded to x's dtype before it is multiplied. Keeps only x and one number per row for the
// backward pass. Second derivatives are not available. Uses the device's kernel if there is one.
at::Tensor ApplyRmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// Returns x + branch and ApplyRmsNorm(x + branch, weight, epsilon). If `branch` is undefined, `sum`
// is x. The gradients of x through both results are added in one pass. Precondition: x and branch
// have the same shape and dtype.
NormalizedSum AddAndRmsNorm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                            double epsilon);

}  // namespace dslaunch
