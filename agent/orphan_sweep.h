// What the agent does when its keeper is gone: workers died with the keeper, what they had started
// did not.
#pragma once

#include <sys/types.h>

#include <span>
#include <string_view>
#include <vector>

#include "agent/kill_ladder.h"

namespace dslaunch {

// Runs the kill ladder on the processes of this user whose environment carries the job id, and on
// the members of the given process groups (the workers' pids) within the caller's session; never on
// the caller. Blocks until nothing is left or until grace + teardown are over; returns the pids
// that are left.
std::vector<pid_t> SweepOrphans(std::string_view job_id, std::span<const pid_t> groups,
                                const LadderOptions& options);

}  // namespace dslaunch
