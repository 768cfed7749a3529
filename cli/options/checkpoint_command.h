// Parses the command line of `dslaunch checkpoint ls | verify | export | convert | diff`. The
// trainer, which can read checkpoints, runs these commands.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/option_table.h"

namespace dslaunch {

struct CheckpointCommand {
  std::string help;  // text to print on stdout instead of running the command; empty to run it
  std::vector<std::string> words;  // arguments of the trainer (trainer/program/checkpoint_tool.h)

  // The values of the command line, from which `words` are made.
  std::string path;
  std::string out;          // output of export and convert; second checkpoint of diff
  std::string to;           // target format of convert; empty for safetensors
  std::string dtype;        // target dtype of export and convert; empty to keep the dtype
  std::string prefix;       // value of --prefix, an option of `convert` only
  std::string key;          // value of --key, an option of `convert` only
  bool force = false;       // whether --force was given to `export` or `convert`
  bool merge_lora = false;  // whether --merge_lora was given to `export`
  bool json = false;        // whether --json was given to `ls` or `diff`
};

// Returns the rows of the checkpoint commands in the table of all commands.
std::vector<CommandSpec> CheckpointCommands();

// Parses the command line, whose first word in `words` is "checkpoint". Errors are kUsage, one line
// with a hint.
Result<CheckpointCommand> ParseCheckpointCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
