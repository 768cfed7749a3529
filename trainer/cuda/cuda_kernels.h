// The trainer's own kernels for NVIDIA's GPUs.
#pragma once

#include <memory>

#include "trainer/device/fused_kernels.h"

namespace dslaunch {

// Compiles kernels.cu for the GPU `index` of this process (a second or less of a CPU). Throws
// c10::Error where this machine has no NVRTC, or that refuses them.
std::unique_ptr<FusedKernels> MakeCudaKernels(int index);

}  // namespace dslaunch
