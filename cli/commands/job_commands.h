// Carries out `dslaunch ps | logs | attach | stop | report`.
#pragma once

#include "cli/options/job_command.h"
#include "cli/output/terminal.h"

namespace dslaunch {

// Returns the exit code. Afterwards the process ends by _exit: threads may still wait for nodes
// that do not answer.
Result<int> RunJobCommand(const JobCommand& command, Terminal& terminal);

}  // namespace dslaunch
