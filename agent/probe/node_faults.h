// Judges a node by its own measurement, without comparison with other nodes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/measure.pb.h"

namespace dslaunch {

struct NodeFault {
  std::string check;  // one or two words
  std::string seen;
  std::string hint;
};

// Returns why the node cannot run ranks: a failed health command, a folder that cannot be written
// to, and what is wrong with the first `gpus` GPUs.
std::vector<NodeFault> FaultsOf(const pb::NodeMeasurement& measured, uint32_t gpus);

}  // namespace dslaunch
