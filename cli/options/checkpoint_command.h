// The command line of `dslaunch checkpoint ls | verify | export`. The trainer, which can read
// checkpoints, runs these commands.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct CheckpointCommand {
  std::string help;  // text to print on stdout instead of running the command; else empty
  std::vector<std::string> words;  // arguments of the trainer (trainer/program/checkpoint_tool.h)

  // The values that were given, from which `words` are made.
  std::string path;
  std::string out;     // export only
  std::string dtype;   // export only; empty if the dtype is kept
  bool force = false;  // export only
  bool json = false;   // ls only
};

// Parses the command line; `words` begins with "checkpoint". Errors are kUsage, one line with a
// hint.
Result<CheckpointCommand> ParseCheckpointCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
