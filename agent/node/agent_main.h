// Runs the agent, in the process that the supervisor forks.
#pragma once

#include <string_view>

namespace dslaunch {

// Serves proto/agent.proto on `grpc_fd` and drives the supervisor behind `control_fd` until the job
// and the front end are gone. `sockets_fd`: see SupervisorOptions::run_agent. `command_fd`, unless
// -1, is served too: this node's own command in the per-node style. Takes all descriptors.
// `pmix_server`: see NodeAgent. Returns the process's exit status.
int RunAgent(int grpc_fd, int control_fd, int sockets_fd, int command_fd,
             std::string_view pmix_server);

}  // namespace dslaunch
