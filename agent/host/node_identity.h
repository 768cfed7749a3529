// Identifies the machine on which an agent runs.
#pragma once

#include <string>

namespace dslaunch {

// Returns an opaque text that is equal for two agents only if they run on one machine. The text
// contains the boot ID and the IDs of namespaces, because containers share the boot ID with their
// host and with each other.
std::string NodeIdentity();

}  // namespace dslaunch
