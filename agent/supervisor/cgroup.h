// Creates and kills the workers' control group (cgroup v2). The cgroup contains every process that
// the workers start, whatever its session, parent or environment, and can be killed at once. It is
// always a child of the calling process's cgroup. If it cannot be created, the process tree is used
// instead.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/os/process_tree.h"

namespace dslaunch {

// Returns the number of out-of-memory kills in the content of memory.events; 0 if the text does not
// contain this number. Pure.
uint64_t ParseOomKills(std::string_view memory_events);

// Creates an empty cgroup below the caller's own cgroup, named by the job and the calling process,
// and returns its folder. Fails with the reason, such as a missing cgroup v2 or permission.
Result<std::string> CreateWorkerCgroup(std::string_view job_id);

// The functions below take the folder of such a cgroup. A folder that does not exist counts as an
// empty cgroup.

// Returns the living processes in the cgroup and its descendants.
std::vector<ProcessInfo> CgroupProcesses(const std::string& folder);

// Sends SIGKILL to all processes in the cgroup. Does so atomically if the kernel supports that
// (5.14); otherwise one by one, so a process that is forked meanwhile may escape. Call this again
// until no process is left.
void KillCgroup(const std::string& folder);

// Removes the cgroup and its descendants. Returns false if one of them still contains processes.
bool RemoveCgroup(const std::string& folder);

// Returns the number of out-of-memory kills in the cgroup. If memory is not accounted in the
// cgroup, returns the number of its parent, the caller's own cgroup; nullopt if memory is not
// accounted in the parent either.
std::optional<uint64_t> CountOomKills(const std::string& folder);

}  // namespace dslaunch
