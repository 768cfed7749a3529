// Declares the functions that find the devices of each vendor below /sys, /proc and /dev
// (AcceleratorRow::read).
#pragma once

#include <string>
#include <vector>

#include "agent/accelerators/accelerators.h"

namespace dslaunch {

// Returns the GPUs that NVIDIA's driver lists below /proc/driver/nvidia/gpus and that have a device
// file. A container may have the files of some GPUs but the list of all (Kubernetes' device plugin
// with CDI), or files without a list (gVisor). A machine whose GPUs have not been used yet may have
// no device files.
std::vector<Accelerator> ReadNvidia(const std::string& root, const LookUpVariable& getenv);

// Returns the nodes of KFD's topology that have SIMD units; each partition of a GPU is a node. In a
// container, the kernel hides the properties of GPUs that the device cgroup forbids, so these GPUs
// are omitted.
std::vector<Accelerator> ReadAmd(const std::string& root, const LookUpVariable& getenv);

// Returns the GPUs of DRM except integrated graphics: one device for each tile, or one for each GPU
// if ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE.
std::vector<Accelerator> ReadIntel(const std::string& root, const LookUpVariable& getenv);

// Returns the devices with device files /dev/davinciN. CANN numbers them from 0 without gaps.
std::vector<Accelerator> ReadAscend(const std::string& root, const LookUpVariable& getenv);

// Returns the devices of the accel subsystem, or of the habanalabs subsystem of older drivers, in
// the order of the module numbers by which variables name the devices.
std::vector<Accelerator> ReadGaudi(const std::string& root, const LookUpVariable& getenv);

// Returns the cards below /proc/driver/cambricon/mlus that have a device file, in the order of the
// device files.
std::vector<Accelerator> ReadCambricon(const std::string& root, const LookUpVariable& getenv);

}  // namespace dslaunch
