// Converts the end of a worker to a cause that may end the attempt.
#pragma once

#include <cstdint>
#include <string>

#include "proto/agent.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

struct WorkerEnd {
  pb::WorkerEnded event;  // event that reports the end to the front end
  bool failed = false;    // whether CauseOfFailure(event) must be sent to the rendezvous
  std::string note;       // line for the agent's log; empty if there is none
};

// Returns whether a worker failed by itself, and not because its node was being torn down.
bool IsFailure(const pb::WorkerExited& exited);

// Returns the cause that describes the failure and may end the attempt.
pb::Cause CauseOfFailure(const pb::WorkerEnded& ended, uint32_t node_index);

}  // namespace dslaunch
