#include "agent/host/gpus.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "agent/host/folder_names.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr std::string_view kGpu = "GPU-";
constexpr std::string_view kMig = "MIG-";

std::optional<int> WholeNumber(std::string_view text) {
  int number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Returns the PCI addresses of the GPUs that the driver lists.
std::vector<std::string> ListedByDriver(const std::string& root) {
  return NamesIn(root + "/proc/driver/nvidia/gpus");
}

// Returns the numbers of the device files, such as 3 for /dev/nvidia3.
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

// Returns the addresses of the GPUs that a program can use, in order; empty strings if the driver
// lists none.
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

// Returns the device that an element of CUDA_VISIBLE_DEVICES names: a number, without trailing
// text, which CUDA ignores, or a name. Empty if it names none.
std::string DeviceOf(std::string_view element) {
  constexpr std::string_view kBlanks = " \t";
  element.remove_prefix(std::min(element.find_first_not_of(kBlanks), element.size()));
  element = element.substr(0, element.find_last_not_of(kBlanks) + 1);
  if (element.starts_with(kGpu) || element.starts_with(kMig)) return std::string(element);
  int number = 0;
  const auto [end, status] =
      std::from_chars(element.data(), element.data() + element.size(), number);
  return status == std::errc() && number >= 0 ? std::to_string(number) : "";
}

// Returns a key that distinguishes the device: its index in `usable`, or its name if UUIDs are
// unknown. Empty if there is no such GPU.
std::string IdentityOf(const std::string& device, const std::vector<GpuPlace>& usable) {
  if (const auto number = WholeNumber(device))
    return static_cast<size_t>(*number) < usable.size() ? device : "";
  const auto matches = [&](const GpuPlace& gpu) { return gpu.uuid.starts_with(device); };
  const auto found = std::ranges::find_if(usable, matches);
  const bool is_unique = std::ranges::count_if(usable, matches) == 1;
  if (is_unique) return std::to_string(found - usable.begin());
  const bool is_unknown =
      std::ranges::any_of(usable, [](const GpuPlace& gpu) { return gpu.uuid.empty(); });
  return found == usable.end() && is_unknown ? device : "";
}

}  // namespace

std::vector<GpuPlace> ReadGpuPlaces(const std::string& root) {
  std::vector<GpuPlace> places;
  for (const std::string& address : UsableAddresses(root)) {
    GpuPlace& place = places.emplace_back();
    if (address.empty()) continue;
    place = {ReadInformation(root, address).uuid, NumaNodeOf(root, address)};
  }
  return places;
}

std::vector<std::string> ListVisibleDevices(std::string_view cuda_visible_devices) {
  std::vector<std::string> devices;
  for (std::string_view rest = cuda_visible_devices; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string device = DeviceOf(rest.substr(0, comma));
    if (device.empty()) break;
    devices.push_back(device);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return devices;
}

VisibleGpus CountVisible(std::string_view cuda_visible_devices, const std::vector<GpuPlace>& usable,
                         bool each_alone) {
  std::set<std::string> seen;
  bool has_mig = false;
  for (const std::string& device : ListVisibleDevices(cuda_visible_devices)) {
    const bool is_mig = device.starts_with(kMig);
    const std::string identity = is_mig ? device : IdentityOf(device, usable);
    if (usable.empty() || identity.empty()) break;
    if (is_mig && has_mig && !each_alone) break;
    has_mig = has_mig || is_mig;
    if (!seen.insert(identity).second) return {0, device};
  }
  return {static_cast<int>(seen.size()), ""};
}

Result<int> CountVisibleGpus(const char* cuda_visible_devices, bool each_alone,
                             const std::string& root) {
  if (cuda_visible_devices == nullptr) return static_cast<int>(UsableAddresses(root).size());
  const VisibleGpus visible = CountVisible(cuda_visible_devices, ReadGpuPlaces(root), each_alone);
  if (visible.repeated.empty()) return visible.count;
  return Error{ExitCode::kUsage, "CUDA_VISIBLE_DEVICES=" + Truncate(cuda_visible_devices) +
                                     " names " + Truncate(visible.repeated) +
                                     " twice, for which CUDA shows no GPU at all; name each once"};
}

}  // namespace dslaunch
