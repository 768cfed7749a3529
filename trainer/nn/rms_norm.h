// RMS normalization (Zhang and Sennrich 2019), optionally with the preceding residual connection.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/normalized_sum.h"

namespace dslaunch {

// Returns weight * x / sqrt(mean(x^2) + epsilon) over the last dimension, which `weight` has. As in
// transformers' Llama, the quotient is computed in fp32 and rounded to x's dtype before it is
// multiplied, unlike in at::rms_norm. Keeps only x and one number for each row for the backward
// pass, whose own gradient is not available. Uses the device's own kernel if there is one.
at::Tensor ApplyRmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// Returns x + branch and ApplyRmsNorm(x + branch, weight, epsilon). If `branch` is undefined, `sum`
// is x, and x's gradients through both results are added in one pass. Precondition: x and branch
// have one shape and type.
NormalizedSum AddAndRmsNorm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                            double epsilon);

}  // namespace dslaunch
