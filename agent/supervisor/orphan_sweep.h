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
  // Value of kJobIdVariable in the environment of such processes of this user.
  std::string job_id = {};
  std::vector<pid_t> groups = {};  // process groups of the workers, equal to the workers' pids
  pid_t session = 0;               // session of the supervisor, and thus of the workers' groups
  // Folder of the workers' cgroup (agent/supervisor/cgroup.h); empty if the workers had no cgroup.
  std::string cgroup = {};
};

// Ends the processes that `orphans` identifies by the graceful kill, and removes the cgroup. Spares
// the caller. Other nodes of the job may be on this machine too, so ranks whose own supervisor
// lives are spared as well. Blocks until no process is left or grace + teardown have passed.
// Returns the processes that are left.
LeftProcesses SweepOrphans(const Orphans& orphans, const GracefulKillOptions& options);

}  // namespace dslaunch
