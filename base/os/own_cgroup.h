// Finds the control group (cgroup v2) of this process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Returns the folder of a process's cgroup. `mountinfo`: the content of this process's
// /proc/self/mountinfo. `cgroups`: the content of that process's /proc/PID/cgroup. Fails with the
// reason if no such folder is reachable. Pure.
Result<std::string> FindOwnCgroup(std::string_view mountinfo, std::string_view cgroups);

// Returns the folder of this process's cgroup. Fails with the reason if there is none.
Result<std::string> OwnCgroup();

// Returns the folders of this process's cgroup and its visible ancestors, because a limit may be
// set at any level. Empty if the process has no cgroup.
std::vector<std::string> OwnCgroupsUpwards();

}  // namespace dslaunch
