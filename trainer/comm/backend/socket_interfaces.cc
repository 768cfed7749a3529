#include "trainer/comm/backend/socket_interfaces.h"

#include <net/if.h>

#include <cstdlib>
#include <sstream>

#include "trainer/base/train_error.h"

namespace dslaunch {

std::vector<std::string> SocketInterfaces() {
  const char* const names = std::getenv("GLOO_SOCKET_IFNAME");
  std::vector<std::string> interfaces;
  std::istringstream list(names == nullptr ? "" : names);
  for (std::string name; std::getline(list, name, ',');) {
    if (if_nametoindex(name.c_str()) == 0) {
      throw TrainError(ExitCode::kUsage, "GLOO_SOCKET_IFNAME names the network interface '" + name +
                                             "', which this machine does not have (see: ip link)");
    }
    interfaces.push_back(name);
  }
  return interfaces;
}

}  // namespace dslaunch
