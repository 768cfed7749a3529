#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// A tensor of the training state besides the weights and the optimizer's states of parts. A
// checkpoint stores it. A run continues without it if it does not fit, for example after a change
// of the number of ranks.
struct RankTensor {
  std::string name;    // name, such as "worker_error/fc1.weight"
  at::Tensor tensor;   // contiguous; not a copy, so copying into it restores the state
  bool shared = true;  // true if all ranks have the same values
};

}  // namespace dslaunch
