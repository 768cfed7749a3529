// The workers' control group (cgroup v2): it holds whatever they start, whatever session, parent or
// environment that has, and can kill all of it at once. Only ever a child of the cgroup that the
// calling process is in, and only where that may be made; without one the process tree must do.
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

// The number of processes that the kernel killed for want of memory, by the content of
// memory.events; 0 when it does not say. Pure.
uint64_t ParseOomKills(std::string_view memory_events);

// Makes an empty cgroup below the caller's own, named by the job and the calling process, and
// returns its folder. The error says why there is none: no cgroup v2, not ours to write, ...
Result<std::string> CreateWorkerCgroup(std::string_view job_id);

// What follows takes the folder of such a cgroup; one that does not exist (any more) is empty.

// The living processes in it and in cgroups below it.
std::vector<ProcessInfo> CgroupProcesses(const std::string& folder);

// SIGKILL to all of them: at once where the kernel can (5.14), else one by one, so that what forks
// meanwhile may escape; call it again until nothing is left.
void KillCgroup(const std::string& folder);

// Removes it and the cgroups below it. False when it holds something still.
bool RemoveCgroup(const std::string& folder);

// How often the kernel has killed for want of memory in it. Where memory is not accounted for each
// cgroup: in the cgroup above, which is the caller's own. nullopt: in neither.
std::optional<uint64_t> CountOomKills(const std::string& folder);

}  // namespace dslaunch
