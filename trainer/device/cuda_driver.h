// Whether this process can use an NVIDIA GPU, asked of the driver alone: LibTorch's CUDA libraries
// take seconds and gigabytes of address space to load, so that is done only where it pays.
#pragma once

#include <string>

namespace dslaunch {

struct CudaDevices {
  int count = 0;            // those that CUDA_VISIBLE_DEVICES shows
  std::string none_reason;  // where count is 0
};

// `driver` is the driver's library, as dlopen looks for it. No context is made on any device.
CudaDevices CountCudaDevices(const char* driver = "libcuda.so.1");

}  // namespace dslaunch
