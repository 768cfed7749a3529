// The place of a rank's part in a whole tensor, and copies between them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "dslaunch/tensor_part.h"
#include "trainer/mesh/mesh_groups.h"

namespace dslaunch {

// Returns the elements of `shard`, [shard.elements()]: a view of `flat` if the shard is contiguous,
// else a copy. `flat` has all N elements of the whole tensor, [N], contiguous.
at::Tensor PartOf(const at::Tensor& flat, const Shard& shard);

// Copies `part`, which has the elements of `shard` in row-major order, to their places in `flat`,
// [N], contiguous. Dtypes and devices may differ.
void PutPart(const at::Tensor& part, const Shard& shard, const at::Tensor& flat);

// Describes `part`, this rank's part of the parameter or buffer `name`, as a part of the whole
// tensor that a checkpoint has: without padding if the parameter is divided over the tensor axis.
// Sets is_canonical.
void PlaceInWhole(const MeshGroups& ranks, const std::string& name, TensorPart& part);

}  // namespace dslaunch
