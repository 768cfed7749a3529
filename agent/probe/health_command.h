// Runs the user's health command (--health_command) on a node.
#pragma once

#include "proto/measure.pb.h"

namespace dslaunch {

// Runs the command without a shell, in the node's environment and the folder /, and returns the
// result. The check is passed if the command exits with 0. At the time limit, the command and its
// process group are killed.
pb::HealthResult RunHealthCommand(const pb::HealthCommand& command);

}  // namespace dslaunch
