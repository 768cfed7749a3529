#include "agent/host/gpus.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "agent/host/folder_names.h"

namespace dslaunch {
namespace {

std::optional<int> WholeNumber(std::string_view text) {
  int number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Their PCI addresses.
std::vector<std::string> ListedByDriver(const std::string& root) {
  return NamesIn(root + "/proc/driver/nvidia/gpus");
}

// The numbers of the device files: /dev/nvidia3.
std::set<int> DeviceFiles(const std::string& root) {
  constexpr std::string_view kPrefix = "nvidia";
  std::set<int> numbers;
  for (const std::string& name : NamesIn(root + "/dev")) {
    if (!name.starts_with(kPrefix)) continue;
    if (const auto number = WholeNumber(std::string_view(name).substr(kPrefix.size())))
      numbers.insert(*number);
  }
  return numbers;
}

struct Information {
  std::string uuid;
  std::optional<int> device_file;
};

Information ReadInformation(const std::string& root, const std::string& address) {
  Information information;
  std::ifstream file(root + "/proc/driver/nvidia/gpus/" + address + "/information");
  for (std::string line; std::getline(file, line);) {
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (value == std::string::npos) continue;
    if (line.starts_with("GPU UUID:") && line.compare(value, 4, "GPU-") == 0)
      information.uuid = line.substr(value);
    if (line.starts_with("Device Minor:"))
      information.device_file = WholeNumber(line.substr(value));
  }
  return information;
}

int NumaNodeOf(const std::string& root, const std::string& address) {
  std::ifstream file(root + "/sys/bus/pci/devices/" + address + "/numa_node");
  int node = 0;
  return file >> node ? std::max(0, node) : 0;
}

// The addresses of those that a program can use, in order; empty where the driver lists none.
std::vector<std::string> UsableAddresses(const std::string& root) {
  std::vector<std::string> addresses = ListedByDriver(root);
  const std::set<int> files = DeviceFiles(root);
  if (addresses.empty()) return std::vector<std::string>(files.size());
  if (files.empty() || files.size() >= addresses.size()) return addresses;
  std::erase_if(addresses, [&](const std::string& address) {
    const std::optional<int> file = ReadInformation(root, address).device_file;
    return file && !files.contains(*file);
  });
  if (addresses.size() > files.size()) addresses.resize(files.size());
  return addresses;
}

}  // namespace

int CountVisibleGpus(const char* cuda_visible_devices, const std::string& root) {
  const auto usable = static_cast<int>(UsableAddresses(root).size());
  if (cuda_visible_devices == nullptr) return usable;
  const std::string_view list(cuda_visible_devices);
  if (list.empty() || list == "-1") return 0;
  return std::min(usable, 1 + static_cast<int>(std::ranges::count(list, ',')));
}

std::vector<GpuPlace> ReadGpuPlaces(const std::string& root) {
  std::vector<GpuPlace> places;
  for (const std::string& address : UsableAddresses(root)) {
    GpuPlace& place = places.emplace_back();
    if (address.empty()) continue;
    place = {ReadInformation(root, address).uuid, NumaNodeOf(root, address)};
  }
  return places;
}

}  // namespace dslaunch
