// Fused kernels for tests, by LibTorch's operators: what uses kernels can be run where no GPU is.
#pragma once

#include <memory>

#include "trainer/device/fused_kernels.h"

namespace dslaunch {

std::unique_ptr<FusedKernels> MakeLibtorchKernels();

}  // namespace dslaunch
