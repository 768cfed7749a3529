#include "base/os/usable_cores.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>

#include "base/os/own_cgroup.h"
#include "base/os/proc_text.h"

namespace dslaunch {

std::vector<int> UsableCpus() {
  constexpr size_t kMaxBits = 1u << 16;
  constexpr size_t kWordBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(kMaxBits / kWordBits);
  std::vector<int> cpus;
  const long bytes =
      syscall(SYS_sched_getaffinity, 0, mask.size() * sizeof(unsigned long), mask.data());
  for (size_t bit = 0; bytes > 0 && bit < static_cast<size_t>(bytes) * 8; ++bit) {
    if ((mask[bit / kWordBits] >> (bit % kWordBits) & 1) != 0)
      cpus.push_back(static_cast<int>(bit));
  }
  return cpus;
}

std::optional<uint32_t> ParseCpuMax(std::string_view cpu_max) {
  const uint64_t quota = TakeNumber(cpu_max);  // 0 if the text of the quota is "max"
  const uint64_t period = TakeNumber(cpu_max);
  if (quota == 0 || period == 0) return std::nullopt;
  return static_cast<uint32_t>(std::clamp<uint64_t>(quota / period, 1, UINT32_MAX));
}

int UsableCores() {
  const size_t cpus = UsableCpus().size();
  auto cores = static_cast<uint32_t>(cpus > 0 ? cpus : std::thread::hardware_concurrency());
  for (const std::string& folder : OwnCgroupsUpwards()) {
    const std::string cpu_max = ReadWhole(folder + "/cpu.max").value_or("");
    std::string_view rest = cpu_max;
    if (const auto limit = ParseCpuMax(TakeLine(rest))) cores = std::min(cores, *limit);
  }
  return static_cast<int>(std::max(1u, cores));
}

}  // namespace dslaunch
