// Waits until no process of an earlier start of the agent runs on this node. A nonce identifies
// each start.
#pragma once

#include <string>
#include <string_view>

#include "agent/inspect/inspect.h"

namespace dslaunch {

// Returns whether this node has a process with `--nonce` and this nonce among its arguments. A
// supervisor, its agent and its watchdog have these arguments.
bool RunsStart(std::string_view start_nonce);

// Writes the hello line, with which every stream of an agent begins, as soon as no process of that
// start runs, and returns 0. Returns kUnavailable, with a line on stderr, if this system hides
// processes, and kTimedOut after a minute. Returns 0 without a hello line if stdin ends.
int RunAwaitEnd(const InspectOptions& options, const std::string& start_nonce);

}  // namespace dslaunch
