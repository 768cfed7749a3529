// Measures a node for `dslaunch doctor --bench` and for --preflight.
#pragma once

#include "proto/measure.pb.h"

namespace dslaunch {

// Measures one thing after another, so that none disturbs another: folders, health command,
// processor, memory, GPUs. Leaves nothing on the node. Blocks for the request's times and a few
// seconds besides.
pb::NodeMeasurement MeasureNode(const pb::MeasureRequest& request);

}  // namespace dslaunch
