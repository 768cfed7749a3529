// dslaunch-pmix, which the agent brings along: a node needs nothing else to join ranks of Open MPI
// but OpenPMIx's library.
#pragma once

#include <string_view>

namespace dslaunch {

// Returns the program itself; empty if this agent was built without it.
std::string_view PmixServer();

}  // namespace dslaunch
