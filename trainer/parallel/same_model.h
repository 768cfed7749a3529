// Checks that all ranks train the same model, and copies rank 0's values to all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

// Throws TrainError kBadInput on every rank if the ranks' tensors differ in number, name, dtype,
// shape or in whether they require a gradient. The message describes the first difference, with the
// tensor of each rank. Values are not compared. Collective.
void CheckSameOnAllRanks(const ProcessGroup& group, const std::vector<NamedTensor>& tensors);

// Calls CheckSameOnAllRanks for the trained parameters and the buffers of a model. Also throws if
// the model has no trained parameters, unless `may_be_empty`.
void CheckSameModel(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                    const std::vector<at::Tensor>& buffers, bool may_be_empty);

// Copies rank 0's values to all ranks. Collective. Precondition: the tensors of all ranks have the
// same number, shapes and dtypes.
void BroadcastFromRank0(const ProcessGroup& group, const std::vector<at::Tensor>& tensors);

}  // namespace dslaunch
