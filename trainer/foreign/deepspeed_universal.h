// Reads DeepSpeed's universal checkpoints, which ds_to_universal writes.
//
// The folder zero/NAME/ has one file with the whole parameter in fp32, fp32.pt, and one file for
// each tensor of the optimizer's state, such as exp_avg.pt. Such a file is a dict with `param`, or
// at stage 3 a flat tensor, whose shape is in the model file's param_shapes. The optional step.pt
// is a number. The model files are copies from the checkpoint that was converted.
#pragma once

#include <string>
#include <vector>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Returns whether `folder` contains zero/NAME/fp32.pt for some NAME.
bool IsUniversalFolder(const std::string& folder);

// Returns the plan of the checkpoint in `folder`, whose files are `names`: the positions of its
// tensors in the files (foreign_checkpoint.h). Throws kBadInput if the checkpoint is damaged or not
// supported, and kIo if a file cannot be read.
ForeignCheckpoint PlanUniversal(const std::string& folder, const std::vector<std::string>& names);

}  // namespace dslaunch
