// Implements `dslaunch-agent relay`. With many nodes, the front end connects to only a few of them,
// and reaches the other nodes through programs that it runs on these few (proto/relay.proto).
#pragma once

#include <string>

namespace dslaunch {

// Writes the hello line, with which every stream of an agent begins, and serves until stdin ends.
// Then ends the programs: a program that reaches another node gets SIGTERM, and the agent of the
// relay's own node reads end of file. Returns the exit code.
int RunRelay(const std::string& nonce, const std::string& build_id);

}  // namespace dslaunch
