#include "trainer/device/free_memory.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

namespace dslaunch {

std::optional<int64_t> AvailableBytes(std::string_view text) {
  constexpr std::string_view kName = "MemAvailable:";
  const size_t at = text.find(kName);
  if (at == std::string_view::npos) return std::nullopt;
  const size_t begin = text.find_first_not_of(' ', at + kName.size());
  if (begin == std::string_view::npos) return std::nullopt;
  int64_t kib = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), kib);
  if (error != std::errc() || kib > (int64_t{1} << 50)) return std::nullopt;
  return kib * 1024;
}

std::optional<int64_t> MemoryForTensors(const RankDevice& device) {
  if (!device.device.is_cpu()) {
    const int64_t bytes = TraitsOf(device).memory_bytes;
    return bytes == 0 ? std::nullopt : std::optional(bytes);
  }
  std::ostringstream text;
  text << std::ifstream("/proc/meminfo").rdbuf();
  return AvailableBytes(text.str());
}

}  // namespace dslaunch
