#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// State of training besides the weights and the optimizer's state of each part. A checkpoint stores
// it, and a run continues without it if it does not fit (another number of ranks).
struct RankTensor {
  std::string name;    // "worker_error/fc1.weight"
  at::Tensor tensor;   // contiguous; the tensor in use, so copying into it restores it
  bool shared = true;  // the same values on all ranks; otherwise each rank has its own
};

}  // namespace dslaunch
