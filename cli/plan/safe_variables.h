// Which environment variables a file that the user did not name may set: ./dslaunch.yaml, and
// .deepspeed_env in a folder that does not hold the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/request/launch_options.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// Whether the variable is known to be harmless whatever its value: it sets a number, a switch or a
// name, and no program loads or runs code, reads a file or connects to a server by it. False for
// all variables that are not known. Pure.
bool IsSafeVariable(std::string_view variable);

// Whether ranks run a file or a module of `folder`, an absolute path, as the program: what the
// folder says of their variables gives it no power that it does not have. Reads links on this
// machine.
bool RunsCodeOf(const std::string& folder, const LaunchOptions& options);

// What a message says of another variable.
inline constexpr char kNotKnownSafe[] =
    "is not among the variables that dslaunch knows to be harmless";

// kBadInput: a variable that these hosts give to their ranks is not safe, and would be taken. Of a
// hostfile that is named only by a run file which was found.
Result<void> CheckVariables(const std::vector<Host>& hosts, const std::string& hostfile);

}  // namespace dslaunch
