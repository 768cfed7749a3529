// Operations on all gradients at once, in few passes over them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace dslaunch {

// Returns the L2 norm of all gradients as one vector, computed in at least fp32. It is finite if
// and only if every element is. Waits for the device.
double GradientNorm(const std::vector<at::Tensor>& gradients);

// Returns the norm as an fp64 scalar on the device, without waiting for it. The result is inf if
// the norm of one gradient exceeds fp32's range.
at::Tensor GradientNormOnDevice(const std::vector<at::Tensor>& gradients);

// Multiplies the gradients by min(1, limit / norm) without waiting for the device. `limit` must be
// positive; `norm` is a scalar on the device.
void ClipOnDevice(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit);

// Returns the index of the first gradient with an element that is inf or NaN; nullopt if there is
// none. Waits for the device.
std::optional<size_t> FirstNonFinite(const std::vector<at::Tensor>& gradients);

}  // namespace dslaunch
