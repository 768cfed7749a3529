// Computes sums or means of many tensors over the ranks with few messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/parallel/gradient_scale.h"

namespace dslaunch {

inline GradientScale MeanScale(const ProcessGroup& group) {
  return {.after = 1.0 / group.world_size()};
}

// Replaces each tensor by its sum over the ranks, with the factors of `scale` before and after the
// sum. Collective over `group`, whose ranks must pass tensors of the same shapes and dtypes.
// Tensors are sent in `dtype`, or in their own dtypes if `dtype` is nullopt. Does nothing in a
// group of one rank.
void AllReduceFlat(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                   std::optional<at::ScalarType> dtype, GradientScale scale);

}  // namespace dslaunch
