#include "base/os/node_memory.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/os/own_cgroup.h"
#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

uint64_t KilobytesOf(std::string_view meminfo, std::string_view name) {
  while (!meminfo.empty()) {
    std::string_view line = TakeLine(meminfo);
    if (TakeWord(line) == name) return TakeNumber(line);
  }
  return 0;
}

// Returns the number at the beginning of a file; 0 if the file contains "max" or is missing.
uint64_t NumberIn(const std::string& path) {
  const std::string text = ReadWhole(path).value_or("");
  std::string_view rest = text;
  return TakeNumber(rest);
}

}  // namespace

NodeMemory ReadNodeMemory() {
  const std::string meminfo = ReadWhole("/proc/meminfo").value_or("");
  NodeMemory memory = {KilobytesOf(meminfo, "MemTotal:") * 1024,
                       KilobytesOf(meminfo, "MemAvailable:") * 1024};
  for (const std::string& folder : OwnCgroupsUpwards()) {
    const uint64_t limit = NumberIn(folder + "/memory.max");
    if (limit == 0) continue;
    const uint64_t used = NumberIn(folder + "/memory.current");
    memory.bytes = std::min(memory.bytes, limit);
    memory.available_bytes = std::min(memory.available_bytes, limit > used ? limit - used : 0);
  }
  return memory;
}

}  // namespace dslaunch
