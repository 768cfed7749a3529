// The table of commands and options as plain data, for pages that are generated from it, such as
// docs/reference/options.md. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

struct OptionData {
  std::vector<std::string> names;  // "-H", "--hostfile"; '-' is accepted in place of '_'
  std::string placeholder;         // "FILE", "auto|cuda|cpu"; empty for a flag
  std::string kind;  // "flag", "text", "number", "seconds", "choice", "file", "folder"
  std::vector<std::string> choices;  // accepted values, if the choice is fixed
  std::string default_value;  // empty if there is none, or if `help` explains what it depends on
  std::string help;           // without a full stop and without the default
  std::string group;          // heading of the group in --help
  std::string refusal;        // why the option is refused, and the hint; empty if it is accepted
  // Environment variable with the default, "PET_NNODES"; empty if there is none.
  std::string variable;
  bool in_launch_file = false;  // allowed in the `launch` section of dslaunch.yaml
  bool from_deepspeed = false;
  bool from_torchrun = false;
  bool from_horovod = false;
  bool from_accelerate = false;
  bool is_common = false;  // shown by --help; other options only by --help_all
  bool is_repeatable = false;
};

struct CommandData {
  std::string name;     // "logs", "hostfile write"; empty for the launch of PROGRAM
  std::string usage;    // "dslaunch logs JOB [options]"
  std::string help;     // without a full stop
  std::string details;  // further lines of the help; may be empty
  // Pairs of a command line and its effect.
  std::vector<std::pair<std::string, std::string>> examples;
  bool takes_launch_options = false;  // accepts the launch options, and `options` is empty (doctor)
  std::vector<OptionData> options;    // in the order of the help; options of one group are adjacent
};

// Returns every command with all its options, the launch first.
std::vector<CommandData> AllCommands();

}  // namespace dslaunch
