// A launcher in place of the program, as in `dslaunch torchrun train.py`: replaced by what it would
// start, where dslaunch has its options, else refused. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/option_layers.h"

namespace dslaunch {

struct NestedLaunchContext {
  // Whether this machine has a program of that name or path.
  std::function<bool(const std::string&)> has_program;
  bool has_accelerate_default = false;  // accelerate's default_config.yaml is there
};

struct NestedLaunch {
  OptionLayer options;               // the command line's, with those of the launcher
  std::vector<std::string> program;  // what the launcher would start in each rank
  std::string notice;                // for the user
  bool replaces_torchrun = false;    // which starts one rank per node by default
};

// What `program`, which follows the options `given` on the command line, comes to; nullopt where it
// is not a launcher, or only prints help. Errors are kUsage: the launcher cannot be replaced, its
// options are not known or contradict those of dslaunch.
Result<std::optional<NestedLaunch>> ReplaceNestedLauncher(const OptionLayer& given,
                                                          const std::vector<std::string>& program,
                                                          const NestedLaunchContext& context);

}  // namespace dslaunch
