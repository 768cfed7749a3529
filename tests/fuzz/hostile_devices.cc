// Fuzzes the files of /sys and /proc from which accelerators are read, and the variables that
// select some of them.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/accelerators/accelerators.h"
#include "agent/accelerators/visible_devices.h"
#include "tests/fuzz/hostile_streams.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/requirement.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

constexpr size_t kSlots = 4;

const std::string kPci = "sys/bus/pci/devices/";
const std::string kCards = "sys/devices/";
const std::string kNodes = "sys/class/kfd/kfd/topology/nodes/";

// Files that each row of AcceleratorTable() reads. The input supplies their contents.
const std::map<pb::Device, std::vector<std::string>> kFiles = {
    {pb::DEVICE_CUDA,
     {"proc/driver/nvidia/gpus/0000:19:00.0/information",
      "proc/driver/nvidia/gpus/0000:3b:00.0/information", kPci + "0000:19:00.0/numa_node"}},
    {pb::DEVICE_ROCM,
     {kNodes + "1/properties", kNodes + "2/properties",
      "sys/class/drm/renderD128/device/product_name",
      "sys/class/drm/renderD128/device/mem_info_vram_total", kPci + "0000:c1:00.0/numa_node"}},
    {pb::DEVICE_XPU,
     {kCards + "0000:18:00.0/vendor", kCards + "0000:18:00.0/class", kCards + "0000:18:00.0/device",
      kCards + "0000:18:00.0/numa_node"}},
    {pb::DEVICE_NPU,
     {kPci + "0000:81:00.0/vendor", kPci + "0000:81:00.0/class", kPci + "0000:81:00.0/numa_node"}},
    {pb::DEVICE_HPU,
     {"sys/class/accel/accel0/device/vendor", "sys/class/accel/accel0/device/module_id",
      "sys/class/accel/accel0/device/device_type", "sys/class/accel/accel0/device/numa_node"}},
    {pb::DEVICE_MLU,
     {"proc/driver/cambricon/mlus/0000:41:00.0/information",
      "proc/driver/cambricon/mlus/0000:42:00.0/information", kPci + "0000:41:00.0/numa_node"}}};

// Makes the device files, and the folders of kFiles. Returns whether this succeeded.
bool MakeDevices(const TempDir& root) {
  const auto make = [&](const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(root / path).parent_path());
    root.Write(path, "");
  };
  for (const auto& [device, paths] : kFiles) {
    for (const std::string& path : paths) make(path);
  }
  for (const char* const path : {"dev/nvidia0", "dev/nvidia1", "dev/kfd", "dev/dri/renderD128",
                                 "dev/dri/renderD129", "dev/davinci0", "dev/davinci1",
                                 "dev/accel/accel0", "dev/cambricon_dev0", "dev/cambricon_dev1"})
    make(path);
  std::filesystem::create_directories(root / (kCards + "0000:18:00.0/drm/renderD128"));
  for (const char* const tile : {"tile0", "tile1"})
    std::filesystem::create_directories(root / (kCards + "0000:18:00.0/" + tile));
  std::filesystem::create_directories(root / "sys/class/drm/card0");
  std::filesystem::create_directory_symlink(root / (kCards + "0000:18:00.0"),
                                            root / "sys/class/drm/card0/device");
  return true;
}

// Removes the text up to the next zero byte, and the zero byte, from `rest`. Returns the text.
std::string TakePiece(std::string_view& rest) {
  const size_t end = std::min(rest.find('\0'), rest.size());
  const std::string piece(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return piece;
}

void CheckDevices(const AcceleratorRow& row, const std::vector<Accelerator>& devices) {
  Require(devices.size() <= 4, "there are more devices than files");
  std::set<int> numbers;
  for (size_t i = 0; i < devices.size(); ++i) {
    const Accelerator& one = devices[i];
    Require(one.numa_node.value_or(0) >= 0, "a NUMA node is negative");
    Require(numbers.insert(one.number.value_or(static_cast<int>(i))).second,
            "two devices have one number");
    Require(one.uuid.empty() || (row.takes_uuids && one.uuid.starts_with("GPU-")),
            "a UUID is not one that variables take");
  }
}

}  // namespace

bool ReadsDeviceFiles(const std::string& bytes) {
  static const TempDir root;
  static const bool made = MakeDevices(root);
  Require(made, "the device files could not be made");
  Input input(bytes);
  const AcceleratorRow& row = AcceleratorTable()[input.Below(AcceleratorTable().size())];
  const bool each_alone = input.Flag();
  std::string_view rest = input.Rest();
  for (const std::string& path : kFiles.at(row.device)) {
    // The file is removed first, because ext4 writes a truncated file to the disk at once.
    std::filesystem::remove(root / path);
    root.Write(path, TakePiece(rest));
  }
  std::map<std::string, std::string, std::less<>> variables;
  for (const std::vector<std::string_view>& level : row.levels) {
    if (!rest.empty()) variables.emplace(level.front(), TakePiece(rest));
  }
  if (!rest.empty()) variables.emplace("SLURM_STEP_GPUS", TakePiece(rest));
  const auto getenv = [&](const char* name) -> const char* {
    const auto found = variables.find(std::string_view(name));
    return found == variables.end() ? nullptr : found->second.c_str();
  };

  const std::vector<Accelerator> devices = row.read(root.path(), getenv);
  CheckDevices(row, devices);
  const auto shown = ShownToLastLevel(row, devices, getenv);
  const auto numbered = NumberedDevices(row, devices, getenv);
  if (!IsTaken(VisibleTo(row, devices, getenv, each_alone)) || !IsTaken(shown) ||
      !IsTaken(numbered))
    return false;
  const std::vector<std::string> names = NamesOfSlots(row, {}, getenv, *numbered, 0, kSlots);
  Require(names.size() <= kSlots, "there are more names than slots");
  IsTaken(NumaNodesOf(row, names, *shown));
  const std::string limits = LimitsOn(row, getenv);
  Require(limits == SanitizeForTerminal(limits), "variables could steer a terminal");
  return !devices.empty();
}

}  // namespace dslaunch
