// Compiles the trainer's own kernels for NVIDIA GPUs.
#pragma once

#include <memory>

#include "trainer/device/fused_kernels.h"

namespace dslaunch {

// Compiles the kernels for the GPU `index` of this process, which takes up to one second of CPU
// time. Throws c10::Error if this machine has no NVRTC, or if NVRTC rejects the kernels.
std::unique_ptr<FusedKernels> MakeCudaKernels(int index);

}  // namespace dslaunch
