// What `dslaunch hostfile write` and `check` do.
#pragma once

#include "base/error.h"
#include "cli/options/hostfile_command.h"
#include "cli/output/terminal.h"

namespace dslaunch {

// Asks all nodes at once and blocks for as long as they may take. The exit code; an Error was not
// shown yet. The process must end by _exit: threads may still wait for nodes that do not answer.
Result<int> RunHostfileCommand(const HostfileCommand& command, Terminal& terminal);

}  // namespace dslaunch
