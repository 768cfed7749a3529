// The end of a worker, and its failure as a cause that may end the attempt.
#pragma once

#include <cstdint>
#include <string>

#include "proto/agent.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

struct WorkerEnd {
  pb::WorkerEnded event;  // for the front end
  bool failed = false;    // to be reported to the rendezvous: CauseOfFailure(event)
  std::string note;       // for the agent's log; empty: nothing to note
};

// Returns whether a worker failed by itself, not because its node was being torn down.
bool IsFailure(const pb::WorkerExited& exited);

// Returns the failure as a cause that may end the attempt.
pb::Cause CauseOfFailure(const pb::WorkerEnded& ended, uint32_t node_index);

}  // namespace dslaunch
