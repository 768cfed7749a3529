// Describes a worker that has ended: an event for the front end, and a cause for the rendezvous.
#pragma once

#include <cstdint>
#include <string>

#include "agent/node/attempt_workers.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// Whether it failed by itself, not because its node was being torn down.
bool IsFailure(const pb::WorkerExited& exited);

// What is known about a worker besides its end.
struct WorkerLife {
  uint64_t attempt = 0;
  std::string cwd;                   // in which it ran
  Clock::time_point started_at;      // or a little before
  uint64_t out_of_memory_kills = 0;  // of the node, when it started
  std::string python;  // the interpreter that ran it; empty: it is not known to be Python
};

struct WorkerEnd {
  pb::WorkerEnded event;
  bool failed = false;  // to be reported to the rendezvous: CauseOfFailure(event)
  std::string note;     // for the agent's log; empty: nothing to note
};

// For a failure with the last lines of what it wrote (its stderr, or its stdout when that is empty)
// and with what is to be found out about it: whether it is a victim, whether memory ran out, where
// its core dump is. A worker that ended badly while it was being stopped has failed too, where its
// output has an error of its own: a program whose last act is to leave the process group ends later
// than the ranks that it leaves behind. Reads its files and the kernel's; takes some milliseconds.
WorkerEnd DescribeWorkerEnd(const pb::WorkerExited& exited, const AttemptWorker& worker,
                            const WorkerLife& life);

// The same as a cause that may end the attempt.
pb::Cause CauseOfFailure(const pb::WorkerEnded& ended, uint32_t node_index);

}  // namespace dslaunch
