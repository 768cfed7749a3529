// Replaces a launcher that is given as the program, as in `dslaunch torchrun train.py`, by the
// program that the launcher would start, if dslaunch supports its options. Refuses other launchers.
// All functions are pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/option_layers.h"

namespace dslaunch {

struct NestedLaunchContext {
  // Returns whether this machine has a program with the given name or path.
  std::function<bool(const std::string&)> has_program;
  bool has_accelerate_default = false;  // whether accelerate's default_config.yaml exists
};

struct NestedLaunch {
  OptionLayer options;               // options of the command line and of the launcher
  std::vector<std::string> program;  // program that the launcher would start in each rank
  std::string notice;                // message for the user about the replacement
  // True if the launcher is torchrun, which starts one rank per node by default.
  bool replaces_torchrun = false;
};

// Replaces `program`, which follows the options `given` on the command line, if it is a launcher.
// Returns nullopt if `program` is not a launcher, or only prints help. Errors are kUsage: the
// launcher cannot be replaced, its options are unknown, or they contradict the options of dslaunch.
Result<std::optional<NestedLaunch>> ReplaceNestedLauncher(const OptionLayer& given,
                                                          const std::vector<std::string>& program,
                                                          const NestedLaunchContext& context);

}  // namespace dslaunch
