// Describes the kinds of accelerators on which jobs compute, one row of AcceleratorTable() per
// kind. Other folders read the properties of a vendor only from this table.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/agent.pb.h"

namespace dslaunch {

// A function that returns the value of an environment variable, or nullptr if the variable is
// unset.
using LookUpVariable = std::function<const char*(const char*)>;

struct Accelerator {
  std::string uuid = {};  // name of the device in variables, such as "GPU-..."; empty if unknown
  // NUMA node; nullopt if unknown, and 0 if the kernel reports none, as in torchrun.
  std::optional<int> numa_node;
  std::string name = {};           // product name; empty if unknown
  std::optional<int> number = {};  // number in variables; nullopt if variables use the index
  // Number in the device file's name; -1 if the kind has no such numbers.
  int file = -1;
  int tiles = 0;              // tiles, named "0.1" in variables; 0 if variables name whole devices
  uint64_t memory_bytes = 0;  // memory of the device in bytes; 0 if unknown
  uint64_t memory_used_bytes = 0;
};

// The properties of one vendor's devices. The statically linked agent cannot load the vendor's
// library, so the devices are found without the library.
struct AcceleratorRow {
  pb::Device device = pb::DEVICE_CUDA;
  std::string_view option;  // value of --device, such as "rocm"
  std::string_view name;    // name of the platform, such as "ROCm"
  std::string_view vendor;  // name of the vendor for users, such as "AMD"
  std::string_view noun;    // noun for the devices in messages, such as "GPU"
  // Variables that choose the visible devices, by level. The values of a level count the devices
  // that the previous level shows. If several variables of a level are set, the first variable in
  // this list applies; dslaunch sets all variables of the last level.
  std::vector<std::vector<std::string_view>> levels;
  // Further variables that batch systems set. Each of these variables that is set also gets the
  // last level's value.
  std::vector<std::string_view> copies = {};
  // Value with which the first variable of the last level hides all devices; nullopt if no value
  // does.
  std::optional<std::string_view> hides_all = {};
  bool empty_hides_all = true;  // false if an empty value counts as unset
  bool takes_uuids = false;
  // Whether batch systems assign device files of this kind without setting the kind's variables.
  bool is_given_by_file = false;
  // Device files to name in hints, such as "/dev/kfd and /dev/dri/renderD*".
  std::string_view files;
  // Device files that show that a program computes on a device: such a program has at least one of
  // them open. `*` stands for a number.
  std::vector<std::string_view> open_files;
  std::string_view tool;  // vendor's program that reports the devices' health and power
  // Arguments with which `tool` reads all devices. With them, `tool` fails if it cannot read a
  // device.
  std::vector<std::string_view> tool_arguments = {};
  // Variables that select the network interface for the vendor's communication library, in addition
  // to GLOO_SOCKET_IFNAME.
  std::vector<std::string_view> interface_variables;
  // Returns the usable devices in the order in which the vendor's runtime numbers them. A device is
  // usable if the kernel lists it and its device file can be opened, so a container may have fewer
  // usable devices than the machine. `root` is prefixed to all paths; "" except in tests.
  std::vector<Accelerator> (*read)(const std::string& root, const LookUpVariable& getenv);
};

// Returns one row per kind of accelerator, in the order in which DEVICE_AUTO looks for devices.
const std::vector<AcceleratorRow>& AcceleratorTable();

// Returns the row of `device`; the row of NVIDIA for DEVICE_AUTO and DEVICE_CPU.
const AcceleratorRow& RowOf(pb::Device device);

// Returns the value of --device that selects `device`, such as "cuda", "cpu" or "auto".
std::string_view DeviceOption(pb::Device device);

// Returns `count` with the row's noun, such as "2 GPUs" or "1 NPU".
std::string CountText(const AcceleratorRow& row, int count);

// Returns whether a variable of this name chooses the visible devices of some kind.
bool IsDeviceVariable(std::string_view name);

// Returns whether `path` is a device file that only programs that use an accelerator open.
bool IsAcceleratorFile(std::string_view path);

}  // namespace dslaunch
