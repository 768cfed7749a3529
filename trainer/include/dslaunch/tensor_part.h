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
  // Whether all ranks (in a pipeline: of the stage) hold the same part with the same values.
  // Otherwise their parts are different elements.
  bool replicated = true;
  // Whether the values of a replicated tensor may differ between ranks (running means), so that
  // rank 0's are saved.
  bool rank0_authoritative = false;
  // Whether these ranks save the tensor. False if another pipeline stage saves it (tied weights).
  bool is_canonical = true;

  // Returns the part that is all of `tensor`, held by every rank.
  static TensorPart Whole(std::string name, const at::Tensor& tensor) {
    return {std::move(name), tensor, tensor.sizes().vec(), Shard::Whole(tensor.numel())};
  }
};

}  // namespace dslaunch
