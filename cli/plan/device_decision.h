// Decides what a job computes on, from what its nodes have. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Facts that a node reported about itself.
struct NodeGpus {
  std::string name;
  int slots = 0;
  int gpus = 0;
  int last_device = -1;                 // the largest that a filter chose; -1: no filter
  pb::Device device = pb::DEVICE_CUDA;  // kind of its accelerators
};

struct DeviceDecision {
  pb::Device device = pb::DEVICE_CPU;
  std::string reason;  // one sentence for the user
};

// Decides between CPU and the kinds of accelerators. AUTO chooses the kind of which every node has
// a device for each slot, CPU if no node has any, and is an error otherwise. A kind is an error if
// a node has too few of its devices. With `one_machine` (the local launcher) the nodes share its
// devices; with `only_cuda` AUTO chooses between NVIDIA's GPUs and CPUs. Errors are kUsage and name
// the nodes.
Result<DeviceDecision> DecideDevice(pb::Device requested, const std::vector<NodeGpus>& nodes,
                                    bool one_machine, bool only_cuda = false);

}  // namespace dslaunch
