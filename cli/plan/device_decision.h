// Decides on which kind of device a job computes, from the devices of its nodes. All functions are
// pure.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Facts about devices that a node reported about itself.
struct NodeGpus {
  std::string name;
  int slots = 0;
  int gpus = 0;
  int last_device = -1;  // largest device number that a filter chose; -1 without a filter
  pb::Device device = pb::DEVICE_CUDA;  // kind of the node's accelerators
};

struct DeviceDecision {
  pb::Device device = pb::DEVICE_CPU;
  std::string reason;  // one sentence for the user about the choice
};

// Decides between CPU and the kinds of accelerators. AUTO chooses the kind of which every node has
// a device for each slot, or CPU if no node has a device; in any other case AUTO is an error. A
// requested kind is an error if a node has too few devices of that kind. With `one_machine` (the
// local launcher) the nodes share the devices of this machine. With `only_cuda` AUTO chooses
// between NVIDIA's GPUs and CPUs. Errors are kUsage and name the nodes.
Result<DeviceDecision> DecideDevice(pb::Device requested, const std::vector<NodeGpus>& nodes,
                                    bool one_machine, bool only_cuda = false);

}  // namespace dslaunch
