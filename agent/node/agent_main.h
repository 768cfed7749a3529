// Runs the agent in the process that the supervisor forks.
#pragma once

#include <string_view>

namespace dslaunch {

// Serves proto/agent.proto on `grpc_fd` and controls the supervisor through `control_fd` until the
// job has ended and the front end has disconnected. Then ends the process with exit code 0. Returns
// another exit code if the service cannot be started. `sockets_fd` is the socket through which
// sockets for workers are passed to the supervisor. `command_fd` is the connection of this node's
// own command in the per-node style, which is served too; -1 if there is none. `pmix_server` is the
// content of the program dslaunch-pmix; empty if there is none. Takes ownership of all descriptors.
int RunAgent(int grpc_fd, int control_fd, int sockets_fd, int command_fd,
             std::string_view pmix_server);

}  // namespace dslaunch
