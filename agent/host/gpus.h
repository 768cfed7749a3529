// The NVIDIA GPUs of this machine, without a library of CUDA: the driver lists them below
// /proc/driver/nvidia/gpus, and a program can use those whose device files are there. A container
// may have the files of some of the GPUs and the list of all (Kubernetes' device plugin with CDI),
// or files and no list (gVisor). A machine whose GPUs were not used yet may have no files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct GpuPlace {
  std::string uuid;   // "GPU-..."; empty: unknown
  int numa_node = 0;  // 0 where the kernel knows none, as with torchrun
};

// Those that a program can use, in the order of their PCI addresses. `root` is "" but in tests.
std::vector<GpuPlace> ReadGpuPlaces(const std::string& root);

// Returns the devices that a value of CUDA_VISIBLE_DEVICES names, as CUDA reads it: numbers and
// names (GPU-..., MIG-...), up to the first element that is neither. Pure.
std::vector<std::string> ListVisibleDevices(std::string_view cuda_visible_devices);

struct VisibleGpus {
  int count = 0;              // that CUDA shows to a program
  std::string repeated = {};  // a device that is named twice, for which CUDA shows none; else empty
};

// Counts by CUDA's rules: the first number or UUID without a GPU ends the list, a device that is
// named twice leaves none, and a program sees one MIG device only. `each_alone`: each rank sees one
// device of the list (--virtual_local_rank), so that all MIG devices count. Pure.
VisibleGpus CountVisible(std::string_view cuda_visible_devices, const std::vector<GpuPlace>& usable,
                         bool each_alone);

// CountVisible for this machine; nullptr: the variable is unset. kUsage for a repeated device.
Result<int> CountVisibleGpus(const char* cuda_visible_devices, bool each_alone = false,
                             const std::string& root = "");

}  // namespace dslaunch
