// Which machine this is.
#pragma once

#include <string>

namespace dslaunch {

// Opaque; equal for two agents only if they run on one machine: boot id and namespaces, because
// containers share the boot id with their host and with each other.
std::string NodeIdentity();

}  // namespace dslaunch
