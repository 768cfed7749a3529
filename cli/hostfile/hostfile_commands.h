// Runs `dslaunch hostfile write` and `dslaunch hostfile check`.
#pragma once

#include "base/error.h"
#include "cli/options/hostfile_command.h"
#include "cli/output/terminal.h"

namespace dslaunch {

// Queries all nodes at once and blocks until they have answered or timed out. Returns the exit
// code, or an error that has not been printed. The process must then end by _exit, because threads
// may still wait for nodes that do not answer.
Result<int> RunHostfileCommand(const HostfileCommand& command, Terminal& terminal);

}  // namespace dslaunch
