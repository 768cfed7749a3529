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
  std::string name;  // module path, such as "fc1.weight"
  // This rank's elements, contiguous; not a copy, so writing to the tensor changes the run.
  at::Tensor tensor;
  std::vector<int64_t> shape;  // shape of the whole tensor
  Shard shard;                 // elements of the whole tensor that `tensor` holds, in order
  // True if all ranks (in a pipeline: all ranks of the stage) hold the same part with the same
  // values. Otherwise each rank holds different elements.
  bool replicated = true;
  // True if the values of a replicated tensor may differ between ranks (running means), so that
  // only rank 0's values are saved.
  bool rank0_authoritative = false;
  // True if the ranks of this pipeline stage save the tensor. False if another stage saves it (tied
  // weights).
  bool is_canonical = true;

  // Returns a part that consists of all of `tensor`, which every rank holds.
  static TensorPart Whole(std::string name, const at::Tensor& tensor) {
    return {std::move(name), tensor, tensor.sizes().vec(), Shard::Whole(tensor.numel())};
  }
};

}  // namespace dslaunch
