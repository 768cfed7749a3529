// Whether the ranks train one model, and how its values become rank 0's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"

namespace dslaunch {

// Throws TrainError kBadInput on every rank, naming the first that differs and what each rank has,
// where the ranks' tensors differ in number, name, dtype, shape or in whether they require a
// gradient. Values are not compared.
void CheckSameOnAllRanks(const ProcessGroup& group, const std::vector<NamedTensor>& tensors);

// CheckSameOnAllRanks for a model of these parameters, which are trained, and buffers. Throws also
// where there are no parameters, unless it `may_be_empty`.
void CheckSameModel(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                    const std::vector<at::Tensor>& buffers, bool may_be_empty);

// Gives all ranks rank 0's values. The ranks' tensors must be the same but for these.
void BroadcastFromRank0(const ProcessGroup& group, const std::vector<at::Tensor>& tensors);

}  // namespace dslaunch
