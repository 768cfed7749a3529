#include "agent/host/gpus.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace dslaunch {

int CountVisibleGpus(const char* cuda_visible_devices) {
  // The driver lists its devices here; no library of CUDA needs to be found for that.
  std::error_code ignored;
  int installed = 0;
  for (std::filesystem::directory_iterator it("/proc/driver/nvidia/gpus", ignored), end; it != end;
       it.increment(ignored)) {
    ++installed;
  }
  if (cuda_visible_devices == nullptr) return installed;
  const std::string_view list(cuda_visible_devices);
  if (list.empty() || list == "-1") return 0;
  return std::min(installed, 1 + static_cast<int>(std::ranges::count(list, ',')));
}

}  // namespace dslaunch
