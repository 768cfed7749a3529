// Sums or means of many tensors over the ranks in few messages.
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

// Collective over `group`, whose ranks pass tensors of the same shapes and dtypes. Replaces each by
// the sum over the ranks, multiplied by `scale` before and after it. They are sent in `dtype`;
// nullopt: in their own. Does nothing in a group of one rank.
void AllReduceFlat(const ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                   std::optional<at::ScalarType> dtype, GradientScale scale);

}  // namespace dslaunch
