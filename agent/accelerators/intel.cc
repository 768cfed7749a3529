#include <algorithm>
#include <filesystem>
#include <map>

#include "agent/accelerators/readers.h"
#include "agent/accelerators/system_files.h"
#include "base/os/folder_names.h"

namespace dslaunch {
namespace {

constexpr uint64_t kIntel = 0x8086;
constexpr uint64_t kOtherDisplay = 0x0380;      // PCI class of data center GPUs
constexpr char kIntegrated[] = "0000:00:02.0";  // PCI address of integrated graphics

// Returns the number of tiles of a card, at least 1, as the folders of the xe or i915 driver show
// it. Other GPUs than data center GPUs list units in the folders of i915 that are not tiles, so
// these folders count for data center GPUs only.
int TilesOf(const std::string& card, const std::string& device) {
  const size_t by_xe = NumbersIn(device, "tile").size();
  const uint64_t pci_class = ReadFileNumber(device + "/class").value_or(0) >> 8;
  const size_t by_i915 = pci_class == kOtherDisplay ? NumbersIn(card + "/gt", "gt").size() : 0;
  return static_cast<int>(std::max({by_xe, by_i915, size_t{1}}));
}

// Returns whether variables number whole GPUs instead of tiles.
bool IsComposite(const LookUpVariable& getenv) {
  const char* const hierarchy = getenv("ZE_FLAT_DEVICE_HIERARCHY");
  return hierarchy != nullptr && std::string_view(hierarchy) == "COMPOSITE";
}

}  // namespace

std::vector<Accelerator> ReadIntel(const std::string& root, const LookUpVariable& getenv) {
  const std::string cards = root + "/sys/class/drm/card";
  // Number of each GPU's card, by PCI address. Level Zero numbers GPUs in the order of their
  // addresses, so the map is sorted in that way.
  std::map<std::string, int> by_address;
  for (const int card : NumbersIn(root + "/sys/class/drm", "card")) {
    std::error_code ignored;
    const std::filesystem::path link(cards + std::to_string(card) + "/device");
    const std::string address = std::filesystem::canonical(link, ignored).filename();
    if (ReadFileNumber(link.string() + "/vendor") == kIntel && address != kIntegrated)
      by_address[address] = card;
  }
  std::vector<Accelerator> gpus;
  for (const auto& [address, card] : by_address) {
    const std::string folder = cards + std::to_string(card);
    const std::string device = folder + "/device";
    const std::vector<int> renders = NumbersIn(device + "/drm", "renderD");
    if (renders.empty() ||
        !IsUsableFile(root + "/dev/dri/renderD" + std::to_string(renders.front())))
      continue;
    Accelerator gpu;
    gpu.numa_node = NumaNodeIn(device).value_or(0);
    gpu.name = "Intel GPU " + ReadLine(device + "/device");
    const int tiles = TilesOf(folder, device);
    if (IsComposite(getenv)) gpu.tiles = tiles;
    gpus.insert(gpus.end(), IsComposite(getenv) ? 1 : static_cast<size_t>(tiles), gpu);
  }
  return gpus;
}

}  // namespace dslaunch
