// Returns the peak rates of known accelerators for dense matrix products without sparsity, as given
// in their vendors' data sheets.
#pragma once

#include <optional>
#include <string>

#include "trainer/base/dtype.h"

namespace dslaunch {

// Returns the floating-point operations per second of the device `name` ("NVIDIA H100 80GB HBM3").
// For fp32, the rate is without TF32, which is PyTorch's default. Returns nullopt for unknown
// devices and for all CPUs.
std::optional<double> PeakFlops(const std::string& name, Dtype dtype);

// Returns the name of this machine's first NVIDIA GPU, as its driver reports it; empty without such
// a GPU.
std::string GpuName();

}  // namespace dslaunch
