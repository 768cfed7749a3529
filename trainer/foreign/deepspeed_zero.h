// Plans checkpoints of DeepSpeed's ZeRO stages 0 to 3.
//
// At stages 1 to 3 each rank has a file with its part of the fp32 weights and of the optimizer's
// state, as one flat tensor for each group. The model file lists the parameters of each group in
// order, with their shapes (param_shapes). At stages 1 and 2 each group is divided among the ranks,
// at stage 3 each parameter is (zero_parts.h). At stage 0 the model file also has the optimizer's
// state. Source: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, stage3.py, bf16_optimizer.py.
#pragma once

#include <string>
#include <vector>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Returns the plan of the checkpoint in `folder`, whose files are `names`: the positions of its
// tensors in the files (foreign_checkpoint.h). Throws kBadInput if the checkpoint is damaged or not
// supported, and kIo if a file cannot be read.
ForeignCheckpoint PlanZero(const std::string& folder, const std::vector<std::string>& names);

}  // namespace dslaunch
