// The NVIDIA GPUs of this machine, without a library of CUDA: the driver lists them below
// /proc/driver/nvidia/gpus, and a program can use those whose device files are there. A container
// may have the files of some of the GPUs and the list of all (Kubernetes' device plugin with CDI),
// or files and no list (gVisor). A machine whose GPUs were not used yet may have no files.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// How many a program with this value of CUDA_VISIBLE_DEVICES (nullptr: unset) sees. `root` is ""
// but in tests.
int CountVisibleGpus(const char* cuda_visible_devices, const std::string& root = "");

struct GpuPlace {
  std::string uuid;   // "GPU-..."; empty: unknown
  int numa_node = 0;  // 0 where the kernel knows none, as with torchrun
};

// Those that a program can use, in the order of their PCI addresses.
std::vector<GpuPlace> ReadGpuPlaces(const std::string& root);

}  // namespace dslaunch
