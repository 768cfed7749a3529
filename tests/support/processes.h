// Inspects real processes without the code under test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {

// Polls `condition` every 2 ms; returns false if the condition did not become true within `limit`.
bool WaitFor(milliseconds limit, const std::function<bool()>& condition);

std::string ReadFile(const std::string& path);

// Waits for a pid file that fake_worker writes and returns the pid in it; 0 if the file did not
// appear in time.
pid_t AwaitPidFile(const std::string& path);

// Returns true if the process does not exist or is a zombie.
bool IsGone(pid_t pid);

// Returns the state letter from /proc/PID/stat; '-' if the process does not exist.
char StateOf(pid_t pid);

// Returns a job id that no other test and no other test run uses.
std::string NewJobId();

// Returns the living processes, from all of /proc, whose environment has DSLAUNCH_JOB_ID=`job_id`.
std::vector<pid_t> PidsOfJob(const std::string& job_id);

// Returns the processor time that process `pid` has used so far.
milliseconds CpuTime(pid_t pid);

}  // namespace dslaunch
