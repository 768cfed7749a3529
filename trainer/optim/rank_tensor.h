#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// A tensor of the training state that is neither a weight nor an optimizer's state of a part. A
// checkpoint stores it. A run continues without the tensor if it does not fit, for example after a
// change of the number of ranks.
struct RankTensor {
  std::string name;  // name of the tensor, such as "worker_error/fc1.weight"
  // Value of the state; not a copy, so copying into the tensor restores the state.
  at::Tensor tensor;
  bool shared = true;  // true if all ranks have the same values; otherwise each rank has its own
};

}  // namespace dslaunch
