#include <algorithm>
#include <optional>

#include "agent/accelerators/readers.h"
#include "agent/accelerators/system_files.h"
#include "base/os/folder_names.h"

namespace dslaunch {
namespace {

constexpr char kList[] = "/proc/driver/nvidia/gpus";
constexpr uint64_t kNvidia = 0x10de;
constexpr uint64_t kVga = 0x0300, k3d = 0x0302;  // PCI classes of GPUs with and without display

// Returns the PCI addresses of the GPUs that a program can use, in order. If the driver lists no
// GPUs, returns an empty string for each device file.
std::vector<std::string> UsableAddresses(const std::string& root) {
  std::vector<std::string> addresses = NamesIn(root + kList);
  const std::vector<int> files = NumbersIn(root + "/dev", "nvidia");
  if (addresses.empty()) return std::vector<std::string>(files.size());
  if (files.empty() || files.size() >= addresses.size()) return addresses;
  std::erase_if(addresses, [&](const std::string& address) {
    const std::optional<int> file = WholeNumber(
        ValueIn(ReadText(root + kList + "/" + address + "/information"), "Device Minor"));
    return file && !std::ranges::binary_search(files, *file);
  });
  if (addresses.size() > files.size()) addresses.resize(files.size());
  return addresses;
}

}  // namespace

std::vector<Accelerator> ReadNvidia(const std::string& root, const LookUpVariable&) {
  std::vector<Accelerator> gpus;
  for (const std::string& address : UsableAddresses(root)) {
    Accelerator& gpu = gpus.emplace_back();
    if (address.empty()) {
      gpu.numa_node = CommonNumaNode(root, kNvidia, {kVga, k3d}).value_or(0);
      continue;
    }
    const std::string text = ReadText(root + kList + "/" + address + "/information");
    const std::string uuid = ValueIn(text, "GPU UUID");
    if (uuid.starts_with("GPU-")) gpu.uuid = uuid;
    gpu.name = ValueIn(text, "Model");
    gpu.numa_node = NumaNodeIn(root + "/sys/bus/pci/devices/" + address).value_or(0);
  }
  return gpus;
}

}  // namespace dslaunch
