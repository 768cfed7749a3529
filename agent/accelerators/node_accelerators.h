// Finds the accelerators of this machine that a job may use.
#pragma once

#include <string>
#include <vector>

#include "agent/accelerators/accelerators.h"
#include "base/error.h"

namespace dslaunch {

struct NodeAccelerators {
  const AcceleratorRow* row = nullptr;      // kind of the devices; NVIDIA's row if there are none
  std::vector<Accelerator> installed = {};  // usable devices, whatever the variables show
  std::vector<Accelerator> numbered = {};   // devices that filters count (NumberedDevices)
  std::vector<Accelerator> visible = {};    // devices that programs see (VisibleTo)
  // Returns the kind of `row`; DEVICE_CPU if no device is installed.
  pb::Device device() const { return installed.empty() ? pb::DEVICE_CPU : row->device; }
};

// Returns the devices of kind `wanted`. For DEVICE_AUTO and DEVICE_CPU, returns the first kind of
// AcceleratorTable() with a visible device, else the first kind with an installed device; with
// `only_cuda`, NVIDIA's devices. `each_alone` is as for SeeThrough(). Fails with kUsage if a
// variable lists a device twice.
Result<NodeAccelerators> FindAccelerators(pb::Device wanted, bool only_cuda,
                                          const LookUpVariable& getenv, bool each_alone = false,
                                          const std::string& root = "");

// Returns a device file of any vendor, such as "/dev/kfd", that exists but that this process may
// not open; empty if there is no such file.
std::string FindUnusableFile(const std::string& root);

}  // namespace dslaunch
