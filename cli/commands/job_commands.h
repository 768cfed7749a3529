// Runs `dslaunch ps | describe | logs | attach | stacks | top | stop | report`.
#pragma once

#include "cli/options/job_command.h"
#include "cli/output/terminal.h"

namespace dslaunch {

// Returns the exit code. The process must then end by _exit, because threads may still wait for
// nodes that do not answer.
Result<int> RunJobCommand(const JobCommand& command, Terminal& terminal);

}  // namespace dslaunch
