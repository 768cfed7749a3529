#include <algorithm>

#include "agent/accelerators/readers.h"
#include "agent/accelerators/system_files.h"

namespace dslaunch {
namespace {

constexpr uint64_t kHabana = 0x1da3;

struct Subsystem {
  std::string_view folder;  // folder below /sys that lists the devices
  std::string_view prefix;  // name of a device without its number
  std::string_view files;   // path of a device file without its number
};

constexpr Subsystem kSubsystems[] = {{"/sys/class/accel", "accel", "/dev/accel/accel"},
                                     {"/sys/class/habanalabs", "hl", "/dev/hl"}};

}  // namespace

std::vector<Accelerator> ReadGaudi(const std::string& root, const LookUpVariable&) {
  std::vector<Accelerator> found;
  for (const Subsystem& subsystem : kSubsystems) {
    const std::string folder = root + std::string(subsystem.folder);
    for (const int index : NumbersIn(folder, subsystem.prefix)) {
      const std::string device =
          folder + "/" + std::string(subsystem.prefix) + std::to_string(index) + "/device";
      const bool is_gaudi = ReadFileNumber(device + "/vendor") == kHabana;
      if (!is_gaudi || !IsUsableFile(root + std::string(subsystem.files) + std::to_string(index)))
        continue;
      Accelerator& hpu = found.emplace_back();
      hpu.numa_node = NumaNodeIn(device).value_or(0);
      hpu.file = index;
      hpu.number = WholeNumber(ReadLine(device + "/module_id")).value_or(index);
      const std::string type = ReadLine(device + "/device_type");
      hpu.name = type.empty() ? "Gaudi" : type;
    }
    if (!found.empty()) break;  // a driver provides only one of the two subsystems
  }
  std::ranges::sort(found, {}, &Accelerator::number);
  return found;
}

}  // namespace dslaunch
