// Reads the network interfaces over which the user wants ranks to connect.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Returns the comma-separated names in GLOO_SOCKET_IFNAME; empty if the variable is not set. Throws
// TrainError for an interface that this machine does not have.
std::vector<std::string> SocketInterfaces();

}  // namespace dslaunch
