// Copies between a whole tensor and the part of it that a rank holds.
#pragma once

#include <ATen/core/Tensor.h>

#include "dslaunch/shard.h"

namespace dslaunch {

// Returns the elements of `shard`, [shard.elements()]: a view of `flat` if the shard is contiguous,
// else a copy. `flat` has all N elements of the whole tensor, [N], contiguous.
at::Tensor PartOf(const at::Tensor& flat, const Shard& shard);

// Copies `part`, which has the elements of `shard` in row-major order, to their places in `flat`,
// [N], contiguous. Dtypes and devices may differ.
void PutPart(const at::Tensor& part, const Shard& shard, const at::Tensor& flat);

}  // namespace dslaunch
