// The peak rates of known accelerators: dense matrix products without sparsity, from their makers'
// data sheets.
#pragma once

#include <optional>
#include <string>

#include "trainer/base/dtype.h"

namespace dslaunch {

// Returns the floating-point operations per second of a device called `name` ("NVIDIA H100 80GB
// HBM3"). For fp32 it is the rate without TF32, which is PyTorch's default. Returns nullopt if
// unknown, as for all CPUs.
std::optional<double> PeakFlops(const std::string& name, Dtype dtype);

// Returns the name of this machine's first NVIDIA GPU, from its driver; empty if there is none.
std::string GpuName();

}  // namespace dslaunch
