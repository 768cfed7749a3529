// `dslaunch-agent relay`: with many nodes, the front end connects to only a few of them and reaches
// the others by programs that it runs there (proto/relay.proto).
#pragma once

#include <string>

namespace dslaunch {

// Writes the hello line and serves until stdin ends. Then also ends the programs: with SIGTERM
// those that reach nodes, and with end of file the agent of the relay's own node.
int RunRelay(const std::string& nonce, const std::string& build_id);

}  // namespace dslaunch
