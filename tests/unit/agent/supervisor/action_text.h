// Writes the actions of the supervisor's cores as texts, for tests that carry them out on numbers
// instead of processes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/supervisor/left_process.h"
#include "agent/supervisor/supervisor_action.h"

namespace dslaunch {

// Adds the text of an action to `texts`. Adds nothing if only the answer shows the action
// (MakeCgroup, StartWorker, CountLeft, ListLeft), or if the last action was the same KillLeft.
void AddText(const SupervisorAction& action, std::vector<std::string>& texts);

// Returns `count` processes that do not end.
LeftProcesses LeftProcessesOf(size_t count);

}  // namespace dslaunch
