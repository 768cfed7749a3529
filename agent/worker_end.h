// What is said of a worker that has ended: to the front end, and as a cause to the rendezvous.
#pragma once

#include <cstdint>

#include "agent/epoch_workers.h"
#include "proto/agent.pb.h"
#include "proto/keeper.pb.h"

namespace dslaunch {

// Whether it ended badly by itself, not because its node was being emptied.
bool IsFailure(const pb::WorkerExited& exited);

// For a failure with the last lines of what it wrote: its stderr, or its stdout when that is empty.
pb::WorkerEnded DescribeWorkerEnd(const pb::WorkerExited& exited, const EpochWorker& worker,
                                  uint64_t epoch);

// The same as a cause that may end the epoch.
pb::Cause CauseOfFailure(const pb::WorkerEnded& ended, uint32_t node_index);

}  // namespace dslaunch
