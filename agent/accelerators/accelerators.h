// Describes the kinds of accelerators that jobs compute on, with a row of AcceleratorTable() for
// each. Other folders read a vendor's properties only from this table.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/agent.pb.h"

namespace dslaunch {

// Returns the value of an environment variable, or nullptr if it is unset.
using LookUpVariable = std::function<const char*(const char*)>;

struct Accelerator {
  std::string uuid = {};         // name in variables, such as "GPU-..."; empty if unknown
  std::optional<int> numa_node;  // nullopt if unknown; 0 if the kernel reports none, as in torchrun
  std::string name = {};         // product name; empty if unknown
  std::optional<int> number = {};  // number in variables; nullopt if the index among all devices
  int file = -1;                   // number in the name of the device file; -1 if not used
  int tiles = 0;                   // tiles that variables name as "0.1"; 0 if they name devices
  uint64_t memory_bytes = 0;       // total memory; 0 if unknown
  uint64_t memory_used_bytes = 0;
};

// Describes one vendor's devices. They are counted without the vendor's library, which the
// statically linked agent cannot load.
struct AcceleratorRow {
  pb::Device device = pb::DEVICE_CUDA;
  std::string_view option;  // value of --device, such as "rocm"
  std::string_view name;    // name of the platform, such as "ROCm"
  std::string_view vendor;  // name of the vendor, such as "AMD"
  std::string_view noun;    // noun in messages, such as "GPU"
  // Variables that choose the visible devices, by level. The numbers in a level's value count the
  // devices that the previous level shows. If several variables of a level are set, the first
  // counts; dslaunch sets all variables of the last level.
  std::vector<std::vector<std::string_view>> levels;
  // Further variables that batch systems set. Those that are set get the last level's value.
  std::vector<std::string_view> copies = {};
  // Value of the last level's first variable that hides all devices; nullopt: no value does.
  std::optional<std::string_view> hides_all = {};
  bool empty_hides_all = true;  // false if an empty value counts as unset
  bool takes_uuids = false;
  // True if batch systems allot device files of this kind without setting its variables.
  bool is_given_by_file = false;
  std::string_view files;  // device files for hints, such as "/dev/kfd and /dev/dri/renderD*"
  // Device files of which a program that computes on a device has at least one open. `*` stands for
  // a number.
  std::vector<std::string_view> open_files;
  std::string_view tool;  // vendor's program that reports health and power
  // Arguments with which `tool` reads all devices, and fails if it cannot read them.
  std::vector<std::string_view> tool_arguments = {};
  // Variables that name the network interface of the vendor's communication library, besides
  // GLOO_SOCKET_IFNAME.
  std::vector<std::string_view> interface_variables;
  // Returns the usable devices in the order in which the vendor's runtime numbers them: those that
  // the kernel lists and whose device files can be opened. A container may have fewer of them than
  // the machine. `root` is prefixed to all paths; "" except in tests.
  std::vector<Accelerator> (*read)(const std::string& root, const LookUpVariable& getenv);
};

// Returns the rows in the order in which DEVICE_AUTO looks for devices.
const std::vector<AcceleratorRow>& AcceleratorTable();

// Returns the row of `device`, or NVIDIA's row for DEVICE_AUTO and DEVICE_CPU.
const AcceleratorRow& RowOf(pb::Device device);

// Returns the value of --device that stands for `device`, such as "cuda", "cpu" or "auto".
std::string_view DeviceOption(pb::Device device);

// Returns the count with the row's noun, such as "2 GPUs" or "1 NPU".
std::string CountText(const AcceleratorRow& row, int count);

// Returns whether a variable of this name chooses visible devices of any kind.
bool IsDeviceVariable(std::string_view name);

// Returns whether a process that has `path` open uses an accelerator.
bool IsAcceleratorFile(std::string_view path);

}  // namespace dslaunch
