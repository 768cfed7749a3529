// The NVIDIA GPUs of this machine, found without a CUDA library: the driver lists them below
// /proc/driver/nvidia/gpus, and a program can use those with a device file. A container may have
// the files of some GPUs but the list of all (Kubernetes' device plugin with CDI), or files without
// a list (gVisor). A machine whose GPUs have not been used yet may have no files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct GpuPlace {
  std::string uuid;   // "GPU-..."; empty: unknown
  int numa_node = 0;  // 0 if the kernel knows none, as in torchrun
};

// Returns the usable GPUs in the order of their PCI addresses. `root` is "" except in tests.
std::vector<GpuPlace> ReadGpuPlaces(const std::string& root);

// Returns the devices in a value of CUDA_VISIBLE_DEVICES as CUDA reads it: numbers and names
// (GPU-..., MIG-...) up to the first element that is neither. Pure.
std::vector<std::string> ListVisibleDevices(std::string_view cuda_visible_devices);

struct VisibleGpus {
  int count = 0;              // number of devices that CUDA shows to a program
  std::string repeated = {};  // a device that is listed twice, so CUDA shows none; else empty
};

// Counts the visible GPUs by CUDA's rules: the first number or UUID without a GPU ends the list, a
// device listed twice leaves none, and a program sees only one MIG device. With `each_alone`, each
// rank sees one device of the list (--virtual_local_rank), so all MIG devices count. Pure.
VisibleGpus CountVisible(std::string_view cuda_visible_devices, const std::vector<GpuPlace>& usable,
                         bool each_alone);

// Calls CountVisible() for this machine; nullptr: the variable is unset. Fails with kUsage for a
// device listed twice.
Result<int> CountVisibleGpus(const char* cuda_visible_devices, bool each_alone = false,
                             const std::string& root = "");

}  // namespace dslaunch
