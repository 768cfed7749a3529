// Implements SwiGLU, the gated activation of a decoder's feed-forward layer (Shazeer 2020, section
// 2).
#pragma once

#include <ATen/core/Tensor.h>

namespace dslaunch {

// Returns silu(gate) * up for tensors of the same shape. Uses the device's kernel if there is one,
// which rounds only once, keeps only `gate` and `up` for the backward pass, and has no second
// derivatives.
at::Tensor ApplySwiGlu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace dslaunch
