// Measures a node for `dslaunch doctor --bench` and for --preflight.
#pragma once

#include "proto/measure.pb.h"

namespace dslaunch {

// Measures folders, health command, processor, memory and GPUs, one after another, so that none
// disturbs another. Leaves nothing on the node. Blocks for the request's times and a few seconds
// more.
pb::NodeMeasurement MeasureNode(const pb::MeasureRequest& request);

}  // namespace dslaunch
