// The network interfaces that the user wants ranks to connect over.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Returns the comma-separated names in GLOO_SOCKET_IFNAME; empty if it is not set. Throws
// TrainError for a name that this machine does not have.
std::vector<std::string> SocketInterfaces();

}  // namespace dslaunch
