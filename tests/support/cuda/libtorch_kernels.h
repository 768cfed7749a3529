// Implements fused kernels with LibTorch's operators, so that tests of code that uses kernels run
// without a GPU.
#pragma once

#include <memory>

#include "trainer/device/fused_kernels.h"

namespace dslaunch {

std::unique_ptr<FusedKernels> MakeLibtorchKernels();

}  // namespace dslaunch
