// How the devices of each vendor are found below /sys, /proc and /dev. See AcceleratorRow::read.
#pragma once

#include <string>
#include <vector>

#include "agent/accelerators/accelerators.h"

namespace dslaunch {

// The GPUs that NVIDIA's driver lists below /proc/driver/nvidia/gpus, and that have a device file.
// A container may have the files of some GPUs but the list of all (Kubernetes' device plugin with
// CDI), or files without a list (gVisor). A machine whose GPUs have not been used yet may have no
// files.
std::vector<Accelerator> ReadNvidia(const std::string& root, const LookUpVariable& getenv);

// The nodes with SIMD units of KFD's topology; each partition of a GPU is one. In a container the
// kernel withholds the properties of GPUs that its device cgroup forbids.
std::vector<Accelerator> ReadAmd(const std::string& root, const LookUpVariable& getenv);

// The GPUs of DRM, except integrated graphics: a device for each tile, or for each GPU if
// ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE.
std::vector<Accelerator> ReadIntel(const std::string& root, const LookUpVariable& getenv);

// The files /dev/davinciN. CANN numbers them from 0, without gaps.
std::vector<Accelerator> ReadAscend(const std::string& root, const LookUpVariable& getenv);

// The devices of the accel subsystem, or of older drivers, in the order of their module numbers,
// by which variables name them.
std::vector<Accelerator> ReadGaudi(const std::string& root, const LookUpVariable& getenv);

// The cards below /proc/driver/cambricon/mlus that have a device file, in the order of the files.
std::vector<Accelerator> ReadCambricon(const std::string& root, const LookUpVariable& getenv);

}  // namespace dslaunch
