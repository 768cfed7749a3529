// Checks that the ranks train one model, and gives them rank 0's values.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

// Throws TrainError kBadInput on every rank if the ranks' tensors differ in number, name, dtype,
// shape or in whether they require a gradient; the message has the first that differs, on each
// rank. Values are not compared. Collective.
void CheckSameOnAllRanks(const ProcessGroup& group, const std::vector<NamedTensor>& tensors);

// Calls CheckSameOnAllRanks for the trained parameters and the buffers of a model. Also throws if
// there are no parameters, unless it `may_be_empty`.
void CheckSameModel(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                    const std::vector<at::Tensor>& buffers, bool may_be_empty);

// Copies rank 0's values to all ranks. Precondition: the ranks' tensors differ at most in values.
// Collective.
void BroadcastFromRank0(const ProcessGroup& group, const std::vector<at::Tensor>& tensors);

}  // namespace dslaunch
