// Tensors in files, for states that are larger than the memory (ZeRO-Infinity, section 3: offload
// to NVMe).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// Each tensor is a file of its own, mapped into memory: it is used as any other, the kernel reads
// what is looked at, and writes back what was changed when memory is wanted. The files have no
// names, so nothing is left of them, however the process ends. One thread.
class FileTensors {
 public:
  // Throws TrainError kBadInput where `folder` is not one that can be written to.
  explicit FileTensors(std::string folder);

  // A contiguous tensor on the CPU, of zeros. It may outlive this. Its space is reserved: throws
  // TrainError kIo where there is not enough.
  at::Tensor Zeros(at::IntArrayRef sizes, at::ScalarType dtype) const;

 private:
  std::string folder_;
};

}  // namespace dslaunch
