// The user's health command (--health_command), run on a node.
#pragma once

#include "proto/measure.pb.h"

namespace dslaunch {

// Runs the command without a shell, in the node's environment and the folder /. It and its process
// group are killed at the time limit. Passed: it ended with 0.
pb::HealthResult RunHealthCommand(const pb::HealthCommand& command);

}  // namespace dslaunch
