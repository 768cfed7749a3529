// What is done with checkpoints without training: dslaunch checkpoint ls | verify | export.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// `words` is what follows "checkpoint", as the launcher has checked it:
//   ls DIR [--json]
//   verify PATH                            PATH is a checkpoint or a folder of some
//   export FOLDER OUT [--dtype bf16|fp16|fp32] [--force]
// Prints on stdout. Throws TrainError: kBadInput, naming file and, where it is known, tensor, for
// what is damaged.
void RunCheckpointTool(const std::vector<std::string>& words);

}  // namespace dslaunch
