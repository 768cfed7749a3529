// Text of a node's event, for the log of every step.
#pragma once

#include <string>

#include "proto/agent.pb.h"

namespace dslaunch {

// One sentence without a period; empty for events that are shown elsewhere or are very frequent.
std::string EventText(const std::string& node, const pb::NodeEvent& event);

}  // namespace dslaunch
