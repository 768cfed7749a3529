// What known accelerators could do at most: dense matrix products without sparsity, as their
// makers' data sheets have it.
#pragma once

#include <optional>
#include <string>

#include "trainer/base/dtype.h"

namespace dslaunch {

// Floating point operations per second of one device with this `name` ("NVIDIA H100 80GB HBM3").
// fp32 is the rate without TF32, which is PyTorch's default. nullopt: unknown, as for all CPUs.
std::optional<double> PeakFlops(const std::string& name, Dtype dtype);

// The name of this machine's first NVIDIA GPU, from its driver; empty if there is none.
std::string GpuName();

}  // namespace dslaunch
