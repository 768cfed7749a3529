// Collects the evidence about a worker that has ended.
#pragma once

#include <cstdint>
#include <string>

#include "agent/core/attempt_workers.h"
#include "agent/core/worker_failure.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// Facts about a worker that do not depend on how it ended.
struct WorkerLife {
  uint64_t attempt = 0;
  std::string cwd;                   // working directory of the worker
  Clock::time_point started_at;      // time of the worker's start, or a little earlier
  uint64_t out_of_memory_kills = 0;  // out-of-memory kills on the node until the worker started
  std::string python;                // Python interpreter of the worker; empty if unknown
};

// Returns the event for a worker's end. For a failure, the event has the last lines of the worker's
// stderr, or of its stdout if stderr is empty. It also states whether the worker is a victim,
// whether memory ran out, and where the core dump is. A program that leaves the process group last
// ends later than the ranks whose connections it breaks. A worker that failed while it was being
// stopped therefore counts as failed if its output has an error of its own. Reads files of the
// worker and of the kernel, which takes some milliseconds.
WorkerEnd DescribeWorkerEnd(const pb::WorkerExited& exited, const AttemptWorker& worker,
                            const WorkerLife& life);

}  // namespace dslaunch
