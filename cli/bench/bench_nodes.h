// Measures nodes and the network between them over open inspections.
#pragma once

#include <string>
#include <vector>

#include "cli/commands/doctor.h"
#include "cli/preflight/findings.h"
#include "proto/measure.pb.h"

namespace dslaunch {

struct BenchRequest {
  pb::MeasureRequest tests;  // tests that each node runs by itself; from MakeNodeTests
  std::string trainer;       // path of dslaunch-train on the nodes; empty to skip GPUs
};

// Measures all nodes at once, then the network in rounds of pairs. A node that seems slow is
// measured again, up to three times, while the other nodes are idle, so that a disturbance is not
// mistaken for a slow node. Blocks for a few seconds, plus the time limits of the health command
// and of the wait for free GPUs if `request` has them.
Bench BenchNodes(const std::vector<BenchNode>& nodes, const BenchRequest& request);

}  // namespace dslaunch
