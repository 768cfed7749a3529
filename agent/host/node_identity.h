// Identifies the machine.
#pragma once

#include <string>

namespace dslaunch {

// Returns an opaque text that is equal for two agents only if they run on one machine. It contains
// the boot id and namespaces, because containers share the boot id with their host and with each
// other.
std::string NodeIdentity();

}  // namespace dslaunch
