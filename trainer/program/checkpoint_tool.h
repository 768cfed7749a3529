// Commands on checkpoints without training: dslaunch checkpoint ls | verify | export.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Runs the command in `words`, the arguments after "checkpoint", which the launcher has checked:
//   ls DIR [--json]
//   verify PATH                            PATH is a checkpoint or a folder of some
//   export FOLDER OUT [--dtype bf16|fp16|fp32] [--force]
// Prints to stdout. Throws TrainError; kBadInput, naming the file and, if it is known, the tensor,
// for damaged checkpoints.
void RunCheckpointTool(const std::vector<std::string>& words);

}  // namespace dslaunch
