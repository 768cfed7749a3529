// Finds the control group (cgroup v2) of this process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Returns the folder of a process's cgroup. `mountinfo` is the content of this process's
// /proc/self/mountinfo, and `cgroups` is the content of /proc/PID/cgroup of the process to find.
// Fails with the reason if this process cannot reach such a folder. Pure.
Result<std::string> FindOwnCgroup(std::string_view mountinfo, std::string_view cgroups);

// Returns the folder of this process's cgroup. Fails with the reason if this process cannot reach
// it.
Result<std::string> OwnCgroup();

// Returns the folders of this process's cgroup and of its visible ancestors, because a limit may be
// set at any level. Empty if no cgroup of the process is visible.
std::vector<std::string> OwnCgroupsUpwards();

}  // namespace dslaunch
