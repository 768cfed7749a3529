// Identifies the machine on which an agent runs.
#pragma once

#include <string>

namespace dslaunch {

// Returns an opaque text that is equal for two agents only if they run on the same machine.
// Containers share the boot ID with their host and with each other, so the text contains the IDs of
// namespaces as well as the boot ID.
std::string NodeIdentity();

}  // namespace dslaunch
