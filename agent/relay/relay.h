// `dslaunch-agent relay`: the front end of many nodes holds a link to a few of them only, and
// reaches the others by programs that it has these run (proto/relay.proto).
#pragma once

#include <string>

namespace dslaunch {

// Writes the hello line and serves until stdin ends, which also ends the programs: SIGTERM for
// those that reach nodes, end of file for the agent of the relay's own node.
int RunRelay(const std::string& nonce, const std::string& build_id);

}  // namespace dslaunch
