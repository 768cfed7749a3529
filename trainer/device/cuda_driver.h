// Detects NVIDIA GPUs through the driver alone. LibTorch's CUDA libraries take seconds to load, and
// gigabytes of address space.
#pragma once

#include <string>

namespace dslaunch {

struct CudaDevices {
  int count = 0;            // number of GPUs that are visible under CUDA_VISIBLE_DEVICES
  std::string none_reason;  // reason why `count` is 0; otherwise empty
};

// Counts the GPUs that this process can use. `driver` is the name of the driver's library for
// dlopen. Creates no context on any device.
CudaDevices CountCudaDevices(const char* driver = "libcuda.so.1");

}  // namespace dslaunch
