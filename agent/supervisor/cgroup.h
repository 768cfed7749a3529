// The workers' control group (cgroup v2). It contains every process that they start, whatever its
// session, parent or environment, and can be killed at once. It is always a child of the calling
// process's cgroup and exists only if it may be created; otherwise the process tree is used
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

// Returns the number of out-of-memory kills in the content of memory.events; 0 if it is not there.
// Pure.
uint64_t ParseOomKills(std::string_view memory_events);

// Creates an empty cgroup below the caller's own, named by the job and the calling process, and
// returns its folder. The error is the reason why not: no cgroup v2, no permission, ...
Result<std::string> CreateWorkerCgroup(std::string_view job_id);

// The functions below take the folder of such a cgroup; one that does not exist (any more) is
// empty.

// Returns the living processes in the cgroup and its descendants.
std::vector<ProcessInfo> CgroupProcesses(const std::string& folder);

// Sends SIGKILL to all of them: atomically if the kernel can (5.14), otherwise one by one, so a
// process forked meanwhile may escape. Call it again until nothing is left.
void KillCgroup(const std::string& folder);

// Removes the cgroup and its descendants. Returns false if it still contains processes.
bool RemoveCgroup(const std::string& folder);

// Returns the number of out-of-memory kills in the cgroup. If memory is not accounted there,
// returns the number of the parent, the caller's own cgroup; nullopt if the parent accounts none
// either.
std::optional<uint64_t> CountOomKills(const std::string& folder);

}  // namespace dslaunch
