// The actions of the supervisor's cores as texts, for tests that carry them out on numbers instead
// of processes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/supervisor/left_process.h"
#include "agent/supervisor/supervisor_action.h"

namespace dslaunch {

// Adds the text of an action; nothing if it is seen by its answer only (MakeCgroup, StartWorker,
// CountLeft, ListLeft), or if it is a KillLeft right after the same one.
void AddText(const SupervisorAction& action, std::vector<std::string>& texts);

// Returns `count` processes that do not end.
LeftProcesses LeftProcessesOf(size_t count);

}  // namespace dslaunch
