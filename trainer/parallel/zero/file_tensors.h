// Stores tensors in files, for states that are larger than the memory (ZeRO-Infinity, section 3:
// offload to NVMe).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// Creates tensors in files. Each tensor is a separate file that is mapped into memory, so it is
// used like any other tensor. The kernel loads pages when they are read, and writes changed pages
// back when memory is short. The files have no names, so they disappear however the process ends.
// Not thread-safe.
class FileTensors {
 public:
  // Throws TrainError kBadInput unless files can be created in `folder`.
  explicit FileTensors(std::string folder);

  // Returns a contiguous tensor of zeros on the CPU, which may outlive this object. Reserves its
  // space on the disk. Throws TrainError kIo if the disk has not enough space or the file cannot be
  // mapped.
  at::Tensor Zeros(at::IntArrayRef sizes, at::ScalarType dtype) const;

 private:
  std::string folder_;
};

}  // namespace dslaunch
