#include <cinttypes>
#include <cstdio>

#include "agent/accelerators/readers.h"
#include "agent/accelerators/system_files.h"

namespace dslaunch {
namespace {

uint64_t NumberIn(const std::string& properties, std::string_view key) {
  const std::string text = ValueIn(properties, key);
  return std::strtoull(text.c_str(), nullptr, 10);
}

// Returns the sysfs folder of the GPU's PCI device. For a partition of a GPU, KFD's location has
// the partition's number in place of the PCI function, so function 0 is used if no such device
// exists.
std::string PciFolder(const std::string& root, const std::string& properties) {
  constexpr uint64_t kDomainBits = 0xffff;
  const uint64_t location = NumberIn(properties, "location_id");
  const uint64_t domain = NumberIn(properties, "domain") & kDomainBits;
  const auto folder = [&](uint64_t function) {
    char address[32];
    std::snprintf(address, sizeof address, "%04" PRIx64 ":%02" PRIx64 ":%02" PRIx64 ".%" PRIx64,
                  domain, (location >> 8) & 0xff, (location >> 3) & 0x1f, function);
    return root + "/sys/bus/pci/devices/" + address;
  };
  const std::string exact = folder(location & 7);
  return NumaNodeIn(exact) ? exact : folder(0);
}

// Returns the name of the target for KFD's gfx_target_version: "gfx90a" for 90010.
std::string TargetName(uint64_t version) {
  char name[48];
  std::snprintf(name, sizeof name, "gfx%" PRIu64 "%" PRIu64 "%" PRIx64, version / 10'000,
                version / 100 % 100, version % 100);
  return name;
}

}  // namespace

std::vector<Accelerator> ReadAmd(const std::string& root, const LookUpVariable&) {
  const std::string nodes = root + "/sys/class/kfd/kfd/topology/nodes/";
  std::vector<Accelerator> gpus;
  if (!IsUsableFile(root + "/dev/kfd")) return gpus;
  for (const int node : NumbersIn(nodes, "")) {
    const std::string properties = ReadText(nodes + std::to_string(node) + "/properties");
    if (NumberIn(properties, "simd_count") == 0) continue;
    const std::string render = "renderD" + std::to_string(NumberIn(properties, "drm_render_minor"));
    if (!IsUsableFile(root + "/dev/dri/" + render)) continue;
    Accelerator& gpu = gpus.emplace_back();
    const uint64_t unique_id = NumberIn(properties, "unique_id");
    if (unique_id != 0) {
      char uuid[32];
      std::snprintf(uuid, sizeof uuid, "GPU-%016" PRIx64, unique_id);
      gpu.uuid = uuid;
    }
    gpu.numa_node = NumaNodeIn(PciFolder(root, properties)).value_or(0);
    const std::string device = root + "/sys/class/drm/" + render + "/device/";
    gpu.name = ReadLine(device + "product_name");
    if (const uint64_t version = NumberIn(properties, "gfx_target_version"); gpu.name.empty())
      gpu.name = version == 0 ? "AMD GPU" : "AMD " + TargetName(version);
    gpu.memory_bytes = ReadFileNumber(device + "mem_info_vram_total").value_or(0);
    gpu.memory_used_bytes = ReadFileNumber(device + "mem_info_vram_used").value_or(0);
  }
  return gpus;
}

}  // namespace dslaunch
