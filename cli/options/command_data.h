// Provides the table of commands and options as plain data, for pages that are generated from it,
// such as docs/reference/options.md. All functions are pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

struct OptionData {
  // Names such as "-H" and "--hostfile"; '-' is accepted in place of '_'.
  std::vector<std::string> names;
  // Placeholder of the value, such as "FILE" or "auto|cuda|cpu"; empty for a flag.
  std::string placeholder;
  // Kind of value: "flag", "text", "number", "seconds", "choice", "file" or "folder".
  std::string kind;
  std::vector<std::string> choices;  // accepted values if the choice is fixed, otherwise empty
  // Default value as the user would type it; empty if the option has no default, or if `help`
  // explains a default that varies.
  std::string default_value;
  std::string help;     // description without a full stop and without the default
  std::string group;    // heading in --help under which the option is listed
  std::string refusal;  // reason why the option is refused, and a hint; empty if it is accepted
  // Environment variable that supplies the default, such as "PET_NNODES"; empty if none does.
  std::string variable;
  // True if the `launch` section of dslaunch.yaml may contain the option.
  bool in_launch_file = false;
  bool from_deepspeed = false;
  bool from_torchrun = false;
  bool from_horovod = false;
  bool from_accelerate = false;
  bool is_common = false;  // true if --help shows the option; false if only --help_all does
  bool is_repeatable = false;
};

struct CommandData {
  std::string name;     // name such as "logs" or "hostfile write"; empty for the launch of PROGRAM
  std::string usage;    // usage line, such as "dslaunch logs JOB [options]"
  std::string help;     // description without a full stop
  std::string details;  // further lines of the help; may be empty
  // Pairs of an example command line and its effect.
  std::vector<std::pair<std::string, std::string>> examples;
  // True if the command accepts the launch options instead of `options` (doctor).
  bool takes_launch_options = false;
  // Options in the order of the help; options of one group are adjacent.
  std::vector<OptionData> options;
};

// Returns every command with all its options. The launch of PROGRAM comes first.
std::vector<CommandData> AllCommands();

}  // namespace dslaunch
