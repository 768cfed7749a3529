// The command line of what is done with checkpoints: dslaunch checkpoint ls | verify | export. The
// trainer, which can read them, does it.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct CheckpointCommand {
  std::string help;                // what to print on stdout instead; else empty
  std::vector<std::string> words;  // for the trainer (trainer/program/checkpoint_tool.h)

  // What was given, of which `words` are made.
  std::string path;
  std::string out;     // export
  std::string dtype;   // export; empty: what was saved
  bool force = false;  // export
  bool json = false;   // ls
};

// `words` begins with "checkpoint". Errors are kUsage, one line with a hint.
Result<CheckpointCommand> ParseCheckpointCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
