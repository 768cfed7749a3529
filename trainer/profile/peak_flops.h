// What known accelerators could do at most: dense matrix products without sparsity, as their
// makers' data sheets have it.
#pragma once

#include <optional>
#include <string>

#include "trainer/base/dtype.h"

namespace dslaunch {

// Floating point operations a second of one device, which calls itself `name` ("NVIDIA H100 80GB
// HBM3"). fp32 is that of its plain units, which PyTorch uses unless told otherwise. nullopt: not
// known, as of every CPU.
std::optional<double> PeakFlops(const std::string& name, Dtype dtype);

// The name of this machine's first NVIDIA GPU, as its driver says; empty without one.
std::string GpuName();

}  // namespace dslaunch
