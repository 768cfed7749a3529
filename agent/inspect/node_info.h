// What a node says of itself, for `dslaunch doctor` and `dslaunch hostfile write`.
#pragma once

#include <string>

#include "proto/inspect.pb.h"

namespace dslaunch {

// All but the times. Changes nothing on the node. Blocks for some times the request's patience at
// most, but where a disk does not answer.
pb::NodeInfo GetNodeInfo(const pb::NodeInfoRequest& request);

// This user's state folder for jobs, or the nearest folder above it that exists.
std::string NearestToJobsFolder();

}  // namespace dslaunch
