// The agent process: what the keeper forks.
#pragma once

namespace dslaunch {

// Serves proto/agent.proto on `grpc_fd` and drives the keeper behind `control_fd` until the job and
// the front end are gone. Takes both descriptors. Returns the process's exit status.
int RunAgent(int grpc_fd, int control_fd);

}  // namespace dslaunch
