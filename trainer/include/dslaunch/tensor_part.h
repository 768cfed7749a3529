#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dslaunch/shard.h"

namespace dslaunch {

// The part of a tensor that this rank holds.
struct TensorPart {
  std::string name;            // module path, "fc1.weight"
  at::Tensor tensor;           // contiguous; not a copy: writing to it changes the run
  std::vector<int64_t> shape;  // shape of the whole tensor
  Shard shard;                 // the elements of the whole tensor that `tensor` holds, in order
  // True: all ranks (in a pipeline: of the stage) hold the whole tensor with the same values.
  // False: the parts of the ranks cover the whole, each element once.
  bool replicated = true;
  // For replicated tensors: the values differ between ranks (running means), and those of rank 0
  // are saved.
  bool rank0_authoritative = false;
  // False: ranks of another pipeline stage hold the same tensor and save it (tied weights).
  bool is_canonical = true;

  // All of `tensor`, held by every rank.
  static TensorPart Whole(std::string name, const at::Tensor& tensor) {
    return {std::move(name), tensor, tensor.sizes().vec(), Shard::Whole(tensor.numel())};
  }
};

}  // namespace dslaunch
