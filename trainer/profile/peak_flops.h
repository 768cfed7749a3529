// Has the peak rates of known accelerators for dense matrix products without sparsity, from their
// makers' data sheets.
#pragma once

#include <optional>
#include <string>

#include "trainer/base/dtype.h"

namespace dslaunch {

// Returns the floating-point operations per second of a device called `name` ("NVIDIA H100 80GB
// HBM3"). For fp32 this is the rate without TF32, which is PyTorch's default. Returns nullopt for
// unknown devices and for all CPUs.
std::optional<double> PeakFlops(const std::string& name, Dtype dtype);

// Returns the name of this machine's first NVIDIA GPU, as reported by its driver; empty if there is
// none.
std::string GpuName();

}  // namespace dslaunch
