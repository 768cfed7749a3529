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
  // Devices to which a job's filter refers (NumberedDevices).
  std::vector<Accelerator> numbered = {};
  std::vector<Accelerator> visible = {};  // devices that a program on this node sees (VisibleTo)
  // Returns the kind of `row`; DEVICE_CPU if no device is installed.
  pb::Device device() const { return installed.empty() ? pb::DEVICE_CPU : row->device; }
};

// Returns the devices of kind `wanted`. For DEVICE_AUTO and DEVICE_CPU, chooses the kind: the first
// kind of AcceleratorTable() with a visible device, else the first kind with an installed device.
// With `only_cuda`, chooses NVIDIA's devices instead. All lists are empty if the node has no
// device. `each_alone` is whether each rank sees only one device (SeeThrough). `root` is prefixed
// to all paths; "" except in tests. Fails with kUsage if a variable lists a device twice.
Result<NodeAccelerators> FindAccelerators(pb::Device wanted, bool only_cuda,
                                          const LookUpVariable& getenv, bool each_alone = false,
                                          const std::string& root = "");

// Returns a device file of any vendor, such as "/dev/kfd", that exists but that this process may
// not open; empty if there is no such file. `root` is prefixed to the folders that are searched.
std::string FindUnusableFile(const std::string& root);

}  // namespace dslaunch
