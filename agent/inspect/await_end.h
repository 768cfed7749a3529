// Whether anything of an earlier start of the agent runs on this node.
#pragma once

#include <string>
#include <string_view>

#include "agent/inspect/inspect.h"

namespace dslaunch {

// Whether a process of this node has `--nonce` and this nonce among its arguments, as a supervisor
// has, its agent and its watchdog.
bool RunsStart(std::string_view start_nonce);

// Says hello once none has, and returns 0. Returns kUnavailable, with a line on stderr, where that
// cannot be seen, because this system hides processes; kTimedOut after a minute; 0 without a hello
// when stdin ends.
int RunAwaitEnd(const InspectOptions& options, const std::string& start_nonce);

}  // namespace dslaunch
