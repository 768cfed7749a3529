#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// What training keeps besides weights and what the optimizer keeps of each: a checkpoint holds it,
// and a run goes on without it where it does not fit (another number of ranks).
struct RankTensor {
  std::string name;    // "worker_error/fc1.weight"
  at::Tensor tensor;   // contiguous; the one that is used: copying into it restores it
  bool shared = true;  // all ranks have the same values; else each its own
};

}  // namespace dslaunch
