// Runs `dslaunch ps | describe | logs | attach | stacks | top | stop | report`, and finds the jobs
// on the nodes that `dslaunch doctor` examines.
#pragma once

#include <string>
#include <vector>

#include "cli/commands/job_view.h"
#include "cli/options/job_command.h"
#include "cli/output/terminal.h"
#include "cli/transport/agent_binary.h"

namespace dslaunch {

// Runs the command and returns its exit code. The process must then end by _exit, because threads
// may still wait for nodes that do not answer.
Result<int> RunJobCommand(const JobCommand& command, Terminal& terminal);

// Returns the jobs that this user started on this machine and that run on one of `hosts`. Waits at
// most 5 s for the nodes of detached jobs. The process must then end by _exit, because threads may
// still wait for nodes.
std::vector<JobView> JobsRunningOn(const std::vector<std::string>& hosts, const AgentBinary& agent);

}  // namespace dslaunch
