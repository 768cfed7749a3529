// Ends the processes that workers had started, after their supervisor was killed. The workers died
// with the supervisor, but their children did not.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/left_process.h"

namespace dslaunch {

// Identifies the processes of a job's workers on this node.
struct Orphans {
  std::string job_id = {};  // value of kJobIdVariable in the environment of a process of this user
  std::vector<pid_t> groups = {};  // process groups of the workers, which are the workers' pids
  pid_t session = 0;               // session of the supervisor and therefore of its workers' groups
  // The workers' cgroup (agent/supervisor/cgroup.h); empty if the workers had no cgroup.
  std::string cgroup = {};
};

// Runs the graceful kill on all of these processes and removes the cgroup. Spares the caller, and
// ranks whose own supervisor lives, because the job's other nodes may be on this machine too.
// Blocks until no process is left or grace + teardown are over. Returns the processes that are
// left.
LeftProcesses SweepOrphans(const Orphans& orphans, const GracefulKillOptions& options);

}  // namespace dslaunch
