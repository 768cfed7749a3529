// Ending what workers had started when their supervisor is gone: the workers died with the
// supervisor, the rest did not.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/left_process.h"

namespace dslaunch {

// By what the processes of a job's workers on this node are found.
struct Orphans {
  std::string job_id = {};         // in the environment of a process of this user
  std::vector<pid_t> groups = {};  // the workers' process groups, whose number is the worker's pid
  pid_t session = 0;               // of the supervisor and so of these groups
  std::string cgroup = {};         // the workers' (agent/supervisor/cgroup.h); empty: they had none
};

// Runs the graceful kill on all of them, never on the caller, and removes the cgroup. Blocks until
// nothing is left or until grace + teardown are over; returns what is left.
LeftProcesses SweepOrphans(const Orphans& orphans, const GracefulKillOptions& options);

}  // namespace dslaunch
