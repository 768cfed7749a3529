// Tensors in files, for states that are larger than the memory (ZeRO-Infinity, section 3: offload
// to NVMe).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// Each tensor is a file of its own, mapped into memory, and is used as any other: the kernel loads
// pages when they are read, and writes changed ones back when memory is short. The files have no
// names, so nothing of them remains, however the process ends. One thread.
class FileTensors {
 public:
  // Throws TrainError kBadInput if no files can be made in `folder`.
  explicit FileTensors(std::string folder);

  // Returns a contiguous tensor of zeros on the CPU. It may outlive this. Reserves its space on the
  // disk; throws TrainError kIo if there is not enough.
  at::Tensor Zeros(at::IntArrayRef sizes, at::ScalarType dtype) const;

 private:
  std::string folder_;
};

}  // namespace dslaunch
