// Embeds the program dslaunch-pmix in the agent, so that a node needs only OpenPMIx's library to
// connect ranks of Open MPI.
#pragma once

#include <string_view>

namespace dslaunch {

// Returns the content of the program dslaunch-pmix; empty if this agent was built without it.
std::string_view PmixServer();

}  // namespace dslaunch
