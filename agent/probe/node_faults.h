// Judges a node by its own measurement, without comparing the node with other nodes. All functions
// are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/measure.pb.h"

namespace dslaunch {

struct NodeFault {
  std::string check;  // name of the check, one or two words
  std::string seen;
  std::string hint;
};

// Returns the reasons why the node cannot run ranks: a failed health command, a folder that cannot
// be written to, and faults of the first `gpus` GPUs. Empty if the node has no fault.
std::vector<NodeFault> FaultsOf(const pb::NodeMeasurement& measured, uint32_t gpus);

}  // namespace dslaunch
