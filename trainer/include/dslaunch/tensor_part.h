#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// What this rank holds of a tensor that may be spread over the ranks: the elements [start, start +
// tensor.numel()) of the whole, which is laid out row-major and taken as one row.
struct TensorPart {
  std::string name;            // module path, "fc1.weight"
  at::Tensor tensor;           // the one that is used: writing into it changes the run. Contiguous
  std::vector<int64_t> shape;  // of the whole
  int64_t start = 0;
  // All ranks (of a pipeline: of the stage) hold the whole, and the same. Else the ranks' parts are
  // together the whole, each element once.
  bool replicated = true;
  // Of a replicated one: ranks do have values of their own (running means), and rank 0's count.
  bool rank0_authoritative = false;
  // False: ranks of another pipeline stage hold the same, and save it (tied weights).
  bool is_canonical = true;
};

}  // namespace dslaunch
