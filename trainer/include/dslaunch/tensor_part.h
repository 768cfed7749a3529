#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// The part of a tensor that this rank holds: elements [start, start + tensor.numel()) of the whole
// tensor, flattened in row-major order.
struct TensorPart {
  std::string name;            // module path, "fc1.weight"
  at::Tensor tensor;           // contiguous; not a copy: writing to it changes the run
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t start = 0;
  // True: all ranks (in a pipeline: of the stage) hold the whole tensor with the same values.
  // False: the parts of the ranks cover the whole, each element once.
  bool replicated = true;
  // For replicated tensors: the values differ between ranks (running means), and those of rank 0
  // are saved.
  bool rank0_authoritative = false;
  // False: ranks of another pipeline stage hold the same tensor and save it (tied weights).
  bool is_canonical = true;
};

}  // namespace dslaunch
