// The command line of `dslaunch checkpoint ls | verify | export | convert | diff`. The trainer,
// which can read checkpoints, runs these commands.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/option_table.h"

namespace dslaunch {

struct CheckpointCommand {
  std::string help;  // text to print on stdout instead of running the command; else empty
  std::vector<std::string> words;  // arguments of the trainer (trainer/program/checkpoint_tool.h)

  // The values that were given, from which `words` are made.
  std::string path;
  std::string out;          // export and convert; the second checkpoint of diff
  std::string to;           // convert only; empty: safetensors
  std::string dtype;        // export and convert; empty if the dtype is kept
  std::string prefix;       // convert only
  std::string key;          // convert only
  bool force = false;       // export and convert
  bool merge_lora = false;  // export only
  bool json = false;        // ls and diff
};

// Returns the rows of these commands in the table of all.
std::vector<CommandSpec> CheckpointCommands();

// Parses the command line; `words` begins with "checkpoint". Errors are kUsage, one line with a
// hint.
Result<CheckpointCommand> ParseCheckpointCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
