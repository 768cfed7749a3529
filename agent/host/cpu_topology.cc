#include "agent/host/cpu_topology.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/os/folder_names.h"
#include "base/text/cpu_list.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

std::string ReadLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::vector<int> ReadList(const fs::path& path) {
  const Result<std::vector<int>> list = ParseCpuList(ReadLine(path));
  return list.ok() ? *list : std::vector<int>();
}

// Returns the lowest CPU of the list in a file; `otherwise` if there is no such file.
int FirstOf(const fs::path& path, int otherwise) {
  const std::vector<int> cpus = ReadList(path);
  return cpus.empty() ? otherwise : cpus.front();
}

int LastLevelCache(const fs::path& cpu_folder, int cpu) {
  int level = -1;
  int first = cpu;
  for (const std::string& name : NamesIn(cpu_folder / "cache")) {
    const fs::path index = cpu_folder / "cache" / name;
    const std::string type = ReadLine(index / "type");
    const int found = ReadNumber(index / "level").value_or(-1);
    if ((type != "Unified" && type != "Data") || found <= level) continue;
    level = found;
    first = FirstOf(index / "shared_cpu_list", cpu);
  }
  return first;
}

}  // namespace

CpuTopology ReadCpuTopology(const std::string& root, const std::vector<int>& usable) {
  CpuTopology topology;
  const fs::path devices = root + "/sys/devices/system";
  for (const int id : usable) {
    const fs::path folder = devices / "cpu" / ("cpu" + std::to_string(id));
    Cpu cpu;
    cpu.id = id;
    cpu.core = FirstOf(folder / "topology/thread_siblings_list", id);
    cpu.socket = std::max(0, ReadNumber(folder / "topology/physical_package_id").value_or(0));
    cpu.cache = LastLevelCache(folder, id);
    topology.cpus.push_back(cpu);
  }
  for (const int id : ReadList(devices / "node/online")) {
    const fs::path folder = devices / "node" / ("node" + std::to_string(id));
    topology.nodes.push_back({id, ReadList(folder / "cpulist")});
  }
  if (topology.nodes.empty()) topology.nodes.push_back({0, usable});
  return topology;
}

bool MayBindMemory() { return syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL) == 0; }

}  // namespace dslaunch
