// Measures nodes and the network between them, over open inspections.
#pragma once

#include <string>
#include <vector>

#include "cli/commands/doctor.h"
#include "cli/preflight/findings.h"
#include "proto/measure.pb.h"

namespace dslaunch {

struct BenchRequest {
  pb::MeasureRequest tests;  // of each node by itself: MakeNodeTests
  std::string trainer;       // path of dslaunch-train on the nodes; empty: GPUs are not measured
};

// Measures all nodes at once, and then the network in rounds of pairs. What looks slow is measured
// again, up to three times, while the other nodes are idle, so that a disturbance is not taken for
// a slow node. Blocks for a few seconds, and for the two times of the request where they are used.
Bench BenchNodes(const std::vector<BenchNode>& nodes, const BenchRequest& request);

}  // namespace dslaunch
