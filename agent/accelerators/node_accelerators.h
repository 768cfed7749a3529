// The accelerators of this machine that a job may use.
#pragma once

#include <string>
#include <vector>

#include "agent/accelerators/accelerators.h"
#include "base/error.h"

namespace dslaunch {

struct NodeAccelerators {
  const AcceleratorRow* row = nullptr;      // NVIDIA's if the machine has no accelerator
  std::vector<Accelerator> installed = {};  // usable devices, whatever the variables are
  std::vector<Accelerator> numbered = {};   // see NumberedDevices()
  std::vector<Accelerator> visible = {};    // see VisibleTo()
  // The kind, or DEVICE_CPU if no device is installed.
  pb::Device device() const { return installed.empty() ? pb::DEVICE_CPU : row->device; }
};

// Reads the devices of kind `wanted`. DEVICE_AUTO and DEVICE_CPU stand for the first kind of the
// table with a visible device, else the first with an installed one; with `only_cuda` for
// NVIDIA's. `each_alone`: as for SeeThrough(). Fails with kUsage for a variable that lists a device
// twice.
Result<NodeAccelerators> FindAccelerators(pb::Device wanted, bool only_cuda,
                                          const LookUpVariable& getenv, bool each_alone = false,
                                          const std::string& root = "");

// Returns a device file of any vendor that exists but that this process may not open, such as
// "/dev/kfd"; empty if there is none.
std::string FindUnusableFile(const std::string& root);

}  // namespace dslaunch
