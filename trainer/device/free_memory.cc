#include "trainer/device/free_memory.h"

#include "base/os/node_memory.h"

namespace dslaunch {

std::optional<int64_t> MemoryForTensors(const RankDevice& device) {
  const int64_t bytes = device.device.is_cpu()
                            ? static_cast<int64_t>(ReadNodeMemory().available_bytes)
                            : TraitsOf(device).memory_bytes;
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

}  // namespace dslaunch
