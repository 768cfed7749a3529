// Measures a node for `dslaunch doctor --bench` and for --preflight.
#pragma once

#include "proto/measure.pb.h"

namespace dslaunch {

// Returns the measurement of folders, health command, processor, memory and GPUs. Measures one
// after another, so that no measurement disturbs another. Leaves no files on the node. Blocks for
// the times in the request and a few seconds more.
pb::NodeMeasurement MeasureNode(const pb::MeasureRequest& request);

}  // namespace dslaunch
