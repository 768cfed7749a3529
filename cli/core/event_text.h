// Describes the events of a node as text for the log.
#pragma once

#include <string>

#include "proto/agent.pb.h"

namespace dslaunch {

// Returns one sentence without a period that describes `event`. Returns an empty string for events
// that are shown elsewhere or are very frequent.
std::string EventText(const std::string& node, const pb::NodeEvent& event);

}  // namespace dslaunch
