// Implements operations on all gradients together with few passes over them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace dslaunch {

// Returns the L2 norm of all gradients as one vector, computed in at least fp32. The norm is finite
// if and only if every element is finite. Waits for the device.
double GradientNorm(const std::vector<at::Tensor>& gradients);

// Returns the L2 norm of all gradients as an fp64 scalar on the device, without waiting for the
// device. The norm is inf if the norm of a single gradient exceeds fp32's range.
at::Tensor GradientNormOnDevice(const std::vector<at::Tensor>& gradients);

// Multiplies the gradients by min(1, limit / norm) without waiting for the device. `norm` is a
// scalar on the device. Precondition: `limit` is positive.
void ClipOnDevice(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit);

// Returns the index of the first gradient with an element that is inf or NaN; nullopt if all
// elements are finite. Waits for the device.
std::optional<size_t> FirstNonFinite(const std::vector<at::Tensor>& gradients);

}  // namespace dslaunch
