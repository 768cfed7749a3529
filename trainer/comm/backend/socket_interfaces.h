// The network interfaces that the user wants ranks to connect over.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// The names in GLOO_SOCKET_IFNAME, which has commas between them; none where it is not set. Throws
// TrainError for a name that this machine does not have.
std::vector<std::string> SocketInterfaces();

}  // namespace dslaunch
