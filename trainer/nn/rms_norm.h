// RMS normalization (Zhang and Sennrich 2019).
#pragma once

#include <ATen/core/Tensor.h>

namespace dslaunch {

// Returns weight * x / sqrt(mean(x^2) + epsilon) over the last dimension, which `weight` has. As in
// transformers' Llama, the quotient is computed in fp32 and rounded to x's dtype before it is
// multiplied, unlike in at::rms_norm. Keeps only x and one number for each row for the backward
// pass, whose own gradient is not available.
at::Tensor ApplyRmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace dslaunch
