// The environment variables that a file may set which the user did not name: ./dslaunch.yaml, and
// .deepspeed_env in a folder without the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/request/launch_options.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// Whether the variable is known to be harmless with any value: it sets a number, a switch or a
// name, and it makes no program load or run code, read a file or connect to a server. False for
// all variables that are not known. Pure.
bool IsSafeVariable(std::string_view variable);

// Whether ranks run a file or a module of `folder`, an absolute path, as the program. The folder's
// code runs then anyway, so variables from it add no risk. Reads links on this machine.
bool RunsCodeOf(const std::string& folder, const LaunchOptions& options);

// The predicate of a message that refuses a variable.
inline constexpr char kNotKnownSafe[] =
    "is not among the variables that dslaunch knows to be harmless";

// Checks the variables of a hostfile that only a run file names, and that run file was not named
// by the user. kBadInput: a variable that ranks would get is not safe.
Result<void> CheckVariables(const std::vector<Host>& hosts, const std::string& hostfile);

}  // namespace dslaunch
