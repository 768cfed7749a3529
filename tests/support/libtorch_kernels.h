// Fused kernels for tests, from LibTorch's operators: code that uses kernels can run without a GPU.
#pragma once

#include <memory>

#include "trainer/device/fused_kernels.h"

namespace dslaunch {

std::unique_ptr<FusedKernels> MakeLibtorchKernels();

}  // namespace dslaunch
