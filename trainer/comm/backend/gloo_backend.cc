#include "trainer/comm/backend/gloo_backend.h"

#include <net/if.h>

#include <cstdlib>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trainer/base/train_error.h"

namespace dslaunch {

c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int world_size,
                                                  std::chrono::milliseconds timeout) {
  using c10d::ProcessGroupGloo;
  auto options = ProcessGroupGloo::Options::create(timeout);
  if (const char* names = std::getenv("GLOO_SOCKET_IFNAME"); names != nullptr && *names != '\0') {
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
      if (if_nametoindex(name.c_str()) == 0) {
        throw TrainError(ExitCode::kUsage,
                         "GLOO_SOCKET_IFNAME names the network interface '" + name +
                             "', which this machine does not have (see: ip link)");
      }
      options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
    }
  } else {
    options->devices.push_back(ProcessGroupGloo::createDefaultDevice());
  }
  options->threads = 2 * static_cast<int>(options->devices.size());
  return c10::make_intrusive<ProcessGroupGloo>(store, rank, world_size, options);
}

}  // namespace dslaunch
