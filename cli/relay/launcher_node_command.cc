#include "cli/relay/launcher_node_command.h"

#include <sys/wait.h>

#include "cli/transport/agent_scripts.h"

namespace dslaunch {

// The program ends as the script does, or with another code, such as 1, if it failed itself.
bool LauncherNodeCommand::HasFailedItself(int wait_status) const {
  return !WIFEXITED(wait_status) ||
         (WEXITSTATUS(wait_status) != kAgentMissing && WEXITSTATUS(wait_status) != kInstallFailed);
}

}  // namespace dslaunch
