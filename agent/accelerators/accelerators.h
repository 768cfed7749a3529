// The kinds of accelerators that jobs compute on. AcceleratorTable has a row for each, which is all
// that the other folders know of a vendor.
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

// A device that a program can use.
struct Accelerator {
  std::string uuid = {};           // another name in variables: "GPU-..."; empty: unknown
  std::optional<int> numa_node;    // nullopt: unknown; 0 if the kernel knows none, as in torchrun
  std::string name = {};           // product; empty: unknown
  std::optional<int> number = {};  // number in variables; nullopt: its index among all devices
  int file = -1;                   // number in the name of its device file; -1: not used
  int tiles = 0;                   // parts that variables name as "0.1"; 0: they name whole devices
  uint64_t memory_bytes = 0;       // 0: unknown
  uint64_t memory_used_bytes = 0;
};

// One vendor's devices. They are counted without a vendor's library, which the statically linked
// agent could not load.
struct AcceleratorRow {
  pb::Device device = pb::DEVICE_CUDA;
  std::string_view option;  // value of --device: "rocm"
  std::string_view name;    // "ROCm"
  std::string_view vendor;  // "AMD"
  std::string_view noun;    // "GPU"
  // Variables that choose the visible devices. The numbers of each level count the devices that the
  // level before shows. Of the variables of one level, the first that is set counts; dslaunch sets
  // all of the last level.
  std::vector<std::vector<std::string_view>> levels;
  // Variables that batch systems set beside these. They get the last level's value if they are set.
  std::vector<std::string_view> copies = {};
  // Value of the last level's first variable that hides all devices; nullopt: no value does.
  std::optional<std::string_view> hides_all = {};
  bool empty_hides_all = true;  // false: an empty value is as if it were unset
  bool takes_uuids = false;
  // Whether batch systems give device files of this kind without setting its variables.
  bool is_given_by_file = false;
  std::string_view files;  // device files, for hints: "/dev/kfd and /dev/dri/renderD*"
  // A program that computes on a device has one of these files open. `*` stands for a number.
  std::vector<std::string_view> open_files;
  std::string_view tool;  // vendor's program that reports health and power
  // Arguments with which it reads all devices, and fails if it cannot.
  std::vector<std::string_view> tool_arguments = {};
  // Variables that name the network interface of the vendor's communication library, besides
  // GLOO_SOCKET_IFNAME.
  std::vector<std::string_view> interface_variables;
  // Returns the usable devices in the order in which the vendor's runtime numbers them: those that
  // the kernel lists and whose device files exist here. In a container these are fewer than the
  // machine has. `root` is "" except in tests.
  std::vector<Accelerator> (*read)(const std::string& root, const LookUpVariable& getenv);
};

// In the order in which DEVICE_AUTO looks for devices.
const std::vector<AcceleratorRow>& AcceleratorTable();

// Returns the row of a kind; NVIDIA's for DEVICE_AUTO and DEVICE_CPU.
const AcceleratorRow& RowOf(pb::Device device);

// Returns the value of --device that stands for `device`: "cuda", "cpu", "auto".
std::string_view DeviceOption(pb::Device device);

// Returns "2 GPUs", "1 NPU".
std::string CountText(const AcceleratorRow& row, int count);

// Returns whether a variable of this name chooses visible devices of any kind.
bool IsDeviceVariable(std::string_view name);

// Returns whether a process that has `path` open uses an accelerator.
bool IsAcceleratorFile(std::string_view path);

}  // namespace dslaunch
