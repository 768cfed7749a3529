// Implements the commands on checkpoints that do not train: `dslaunch checkpoint` with ls, verify,
// export, convert or diff.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Runs the command in `words`, the arguments after "checkpoint", which the launcher has checked:
//   ls PATH [--json]
//   verify PATH                            PATH is a checkpoint, or a folder of checkpoints
//   export FOLDER OUT [--dtype bf16|fp16|fp32] [--force]
//   convert PATH OUT [--to KIND] [--dtype bf16|fp16|fp32] [--prefix P] [--key K] [--force]
//   diff A B [--json]
// Prints to stdout. Returns the exit code: 0, or 1 if diff finds a difference. Throws TrainError;
// for a damaged checkpoint, throws kBadInput, naming the file and, if known, the tensor.
int RunCheckpointTool(const std::vector<std::string>& words);

}  // namespace dslaunch
