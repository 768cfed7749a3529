// Implements `dslaunch-agent relay`. With many nodes, the front end connects to only a few of them
// and reaches the other nodes through programs that it runs there (proto/relay.proto).
#pragma once

#include <string>

namespace dslaunch {

// Writes the hello line and serves until stdin ends. Then ends the programs: those that reach nodes
// by SIGTERM, and the agent of the relay's own node by end of file. Returns the exit code.
int RunRelay(const std::string& nonce, const std::string& build_id);

}  // namespace dslaunch
