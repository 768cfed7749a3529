// Implements the rotation of a rotary embedding (Su et al. 2021, section 3.4.2).
#pragma once

#include <ATen/core/Tensor.h>

namespace dslaunch {

// Returns x [B, T, heads, head_dim] with the halves (a, b) of each head replaced by (a cos - b sin,
// b cos + a sin). `cosines` and `sines` are [T, 1, head_dim / 2] or [B, T, 1, head_dim / 2], in x's
// dtype. Keeps no activation for the backward pass. Uses the device's kernel if there is one.
at::Tensor RotateHeads(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines);

}  // namespace dslaunch
