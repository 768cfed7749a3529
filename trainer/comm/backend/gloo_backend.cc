#include "trainer/comm/backend/gloo_backend.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trainer/comm/backend/socket_interfaces.h"

namespace dslaunch {

c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int world_size,
                                                  std::chrono::milliseconds timeout) {
  using c10d::ProcessGroupGloo;
  auto options = ProcessGroupGloo::Options::create(timeout);
  for (const std::string& name : SocketInterfaces())
    options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
  if (options->devices.empty()) options->devices.push_back(ProcessGroupGloo::createDefaultDevice());
  options->threads = 2 * static_cast<int>(options->devices.size());
  return c10::make_intrusive<ProcessGroupGloo>(store, rank, world_size, options);
}

}  // namespace dslaunch
