// The control group (cgroup v2) that this process is in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// The folder of a process' own cgroup, by the content of its /proc/self/mountinfo and
// /proc/self/cgroup. The error says why there is none that can be reached. Pure.
Result<std::string> FindOwnCgroup(std::string_view mountinfo, std::string_view cgroups);

// The folder of this process' own.
Result<std::string> OwnCgroup();

// It and those above it, as far as they can be seen: a limit of any counts. Empty: there is none.
std::vector<std::string> OwnCgroupsUpwards();

}  // namespace dslaunch
