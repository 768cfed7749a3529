// The table of commands and options as plain data, for docs/reference/options.md and other pages
// that are generated. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

struct OptionData {
  std::vector<std::string> names;  // "-H", "--hostfile"; with '_', '-' is taken as well
  std::string placeholder;         // "FILE", "auto|cuda|cpu"; empty: a flag
  std::string kind;  // "flag", "text", "number", "seconds", "choice", "file", "folder"
  std::vector<std::string> choices;  // words that the value may be
  std::string default_value;         // empty: none, or it depends on others (the help says so)
  std::string help;                  // without a full stop, and without the default
  std::string group;                 // heading
  std::string refusal;               // of what is refused: why, and what to do instead; else empty
  std::string variable;              // "PET_NNODES"; empty: none
  bool in_launch_file = false;       // may stand in the `launch` section of dslaunch.yaml
  bool from_deepspeed = false;
  bool from_torchrun = false;
  bool from_horovod = false;
  bool from_accelerate = false;
  bool is_common = false;  // in --help, not in --help_all only
  bool is_repeatable = false;
};

struct CommandData {
  std::string name;     // "logs", "hostfile write"; empty: a launch of PROGRAM
  std::string usage;    // "dslaunch logs JOB [options]"
  std::string help;     // without a full stop
  std::string details;  // more lines, or empty
  std::vector<std::pair<std::string, std::string>> examples;  // a command line, and what it does
  bool takes_launch_options = false;  // those of the launch; then `options` is empty (doctor)
  std::vector<OptionData> options;    // in the order of the help, those of a group together
};

// Every command with every option, the launch first.
std::vector<CommandData> AllCommands();

}  // namespace dslaunch
