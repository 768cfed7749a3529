// Lists the environment variables that a file may set if the user did not name the file:
// ./dslaunch.yaml, and .deepspeed_env in a folder without the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/request/launch_options.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// Returns whether the variable is known to be harmless with any value. Such a variable sets a
// number, a switch or a name, and makes no program load or run code, read a file or connect to a
// server. Returns false for all variables that are not known. Has no side effects.
bool IsSafeVariable(std::string_view variable);

// Returns whether ranks run a file or a module of `folder`, an absolute path, as the program. The
// folder's code then runs anyway, so variables from the folder add no risk. Resolves links on this
// machine.
bool RunsCodeOf(const std::string& folder, const LaunchOptions& options);

// The predicate of a message that refuses a variable, whose subject is the variable.
inline constexpr char kNotKnownSafe[] =
    "is not among the variables that dslaunch knows to be harmless";

// Checks the variables of a hostfile that is named only by a run file that the user did not name.
// Returns kBadInput if a variable that ranks would get is not safe.
Result<void> CheckVariables(const std::vector<Host>& hosts, const std::string& hostfile);

}  // namespace dslaunch
