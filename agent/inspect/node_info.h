// Collects facts about a node for `dslaunch doctor` and `dslaunch hostfile write`.
#pragma once

#include <string>

#include "proto/inspect.pb.h"

namespace dslaunch {

// Returns the facts that `request` asks for, with all fields except the times. Changes nothing on
// the node. Blocks for at most a few times the request's patience, unless a disk does not respond.
pb::NodeInfo GetNodeInfo(const pb::NodeInfoRequest& request);

// Returns this user's folder for jobs; if it does not exist, its nearest existing parent.
std::string NearestToJobsFolder();

}  // namespace dslaunch
