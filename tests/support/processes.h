// Inspects real processes without the code under test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {

// Polls every 2 ms; returns false if the condition did not become true in time.
bool WaitFor(milliseconds limit, const std::function<bool()>& condition);

std::string ReadFile(const std::string& path);

// Returns the pid from a file that fake_worker writes, and waits for the file. 0 if it did not
// appear.
pid_t AwaitPidFile(const std::string& path);

// Returns true if there is no such process, or it is a zombie.
bool IsGone(pid_t pid);

// Returns the letter from /proc/PID/stat; '-' if there is no such process.
char StateOf(pid_t pid);

// Returns a job id that no other test and no other run uses.
std::string NewJobId();

// Returns the living processes whose environment has DSLAUNCH_JOB_ID=`job_id`, from all of /proc.
std::vector<pid_t> PidsOfJob(const std::string& job_id);

// Returns the processor time that a process has used.
milliseconds CpuTime(pid_t pid);

}  // namespace dslaunch
