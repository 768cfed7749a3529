// The agent process: what the supervisor forks.
#pragma once

#include <string_view>

namespace dslaunch {

// Serves proto/agent.proto on `grpc_fd` and drives the supervisor behind `control_fd` until the job
// and the front end are gone. `sockets_fd` is as SupervisorOptions::run_agent has it.
// `command_fd`, unless -1, is served too: this node's own command in the per-node style. Takes all
// descriptors. `pmix_server` is as NodeAgent has it. Returns the process's exit status.
int RunAgent(int grpc_fd, int control_fd, int sockets_fd, int command_fd,
             std::string_view pmix_server);

}  // namespace dslaunch
