// Converts the end of a worker to a cause that may end the attempt.
#pragma once

#include <cstdint>
#include <string>

#include "proto/agent.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

struct WorkerEnd {
  pb::WorkerEnded event;  // event for the front end
  bool failed = false;    // true if the rendezvous must get CauseOfFailure(event)
  std::string note;       // line for the agent's log; empty if there is none
};

// Returns whether a worker failed by itself, not because its node was being torn down.
bool IsFailure(const pb::WorkerExited& exited);

// Returns the failure as a cause that may end the attempt.
pb::Cause CauseOfFailure(const pb::WorkerEnded& ended, uint32_t node_index);

}  // namespace dslaunch
