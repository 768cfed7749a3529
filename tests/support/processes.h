// What the tests of this folder share: looking at real processes without the code under test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {

// Looks every 2 ms; false when it did not come true in time.
bool WaitFor(milliseconds limit, const std::function<bool()>& condition);

std::string ReadFile(const std::string& path);

// The pid in a file that fake_worker writes; waits for it. 0 when it did not appear.
pid_t AwaitPidFile(const std::string& path);

// No such process, or a zombie.
bool IsGone(pid_t pid);

// One letter as in /proc/PID/stat; '-' when there is no such process.
char StateOf(pid_t pid);

// A job id that no other test and no other run uses.
std::string NewJobId();

// The living processes whose environment has DSLAUNCH_JOB_ID=`job_id`, by grepping all of /proc.
std::vector<pid_t> PidsOfJob(const std::string& job_id);

// Processor time that a process has used.
milliseconds CpuTime(pid_t pid);

}  // namespace dslaunch
