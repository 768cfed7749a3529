// What a node said, for people who want to know every step.
#pragma once

#include <string>

#include "proto/agent.pb.h"

namespace dslaunch {

// One sentence without a period; empty for what is shown anyway or comes all the time.
std::string EventText(const std::string& node, const pb::NodeEvent& event);

}  // namespace dslaunch
