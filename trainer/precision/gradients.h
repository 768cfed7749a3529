// What happens to all gradients at once, in few passes over them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace dslaunch {

// The L2 norm of all of them as one vector, computed in at least fp32. Not finite exactly where
// some element is not. Waits for the device.
double GradientNorm(const std::vector<at::Tensor>& gradients);

// The same without waiting for the device: a scalar in fp64 there. inf where the norm of one
// gradient leaves fp32's range.
at::Tensor GradientNormOnDevice(const std::vector<at::Tensor>& gradients);

// Multiplies gradients by min(1, limit / norm), for a limit above 0, without waiting for the
// device; `norm` is a scalar there.
void ClipOnDevice(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit);

// The first gradient with an element that is inf or nan. Waits for the device.
std::optional<size_t> FirstNonFinite(const std::vector<at::Tensor>& gradients);

}  // namespace dslaunch
