// Locates a rank's part in a whole tensor, and copies elements between the part and the whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "dslaunch/tensor_part.h"
#include "trainer/mesh/mesh_groups.h"

namespace dslaunch {

// Returns the elements of `shard` as [shard.elements()]: a view of `flat` if the shard is
// contiguous, else a copy. `flat`, [N] and contiguous, has all N elements of the whole tensor.
at::Tensor PartOf(const at::Tensor& flat, const Shard& shard);

// Copies `part`, which has the elements of `shard` in row-major order, to their positions in
// `flat`, which is [N] and contiguous. Dtypes and devices may differ.
void PutPart(const at::Tensor& part, const Shard& shard, const at::Tensor& flat);

// Changes `part`, this rank's part of the parameter or buffer `name`, into a part of the whole
// tensor that a checkpoint contains. Removes padding if the parameter is divided over the tensor
// axis. Sets is_canonical.
void PlaceInWhole(const MeshGroups& ranks, const std::string& name, TensorPart& part);

}  // namespace dslaunch
