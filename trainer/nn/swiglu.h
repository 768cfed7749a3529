// The gated activation of a decoder's feed-forward layer (Shazeer 2020, section 2: SwiGLU).
#pragma once

#include <ATen/core/Tensor.h>

namespace dslaunch {

// Returns silu(gate) * up, tensors of one shape. Uses the device's own kernel if there is one,
// which rounds once, keeps only `gate` and `up` for the backward pass, and has no second
// derivatives.
at::Tensor ApplySwiGlu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace dslaunch
