// Detects NVIDIA GPUs through the driver alone, because LibTorch's CUDA libraries take seconds and
// gigabytes of address space to load.
#pragma once

#include <string>

namespace dslaunch {

struct CudaDevices {
  int count = 0;            // number of GPUs visible under CUDA_VISIBLE_DEVICES
  std::string none_reason;  // why count is 0
};

// `driver` is the driver's library, as for dlopen. Creates no context on any device.
CudaDevices CountCudaDevices(const char* driver = "libcuda.so.1");

}  // namespace dslaunch
