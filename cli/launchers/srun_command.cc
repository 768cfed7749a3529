#include "cli/launchers/srun_command.h"

#include <sys/wait.h>

#include "cli/transport/ssh_bootstrap.h"
#include "proto/contract/slurm_step.h"

namespace dslaunch {

std::vector<std::string> SrunNodeCommand::CommandLine(const NodeTarget& target,
                                                      const std::string& script) const {
  std::vector<std::string> words = SrunWords(engine_);
  const std::vector<std::string> share = SlurmShareWords(ShareOf(engine_, target.host), 1);
  words.insert(words.end(), share.begin(), share.end());
  words.insert(words.end(),
               {"--overlap", "--whole", "--nodes=1", "--ntasks=1", "--nodelist=" + target.host,
                "--cpu-bind=none", "--mpi=none", "--export=ALL", "--unbuffered", "--quiet",
                "--wait=0", "--kill-on-bad-exit=0", "--no-kill", "/usr/bin/env"});
  for (const std::string_view variable : kSlurmStepVariables)
    words.insert(words.end(), {"-u", std::string(variable)});
  words.insert(words.end(), engine_.request_variables.begin(), engine_.request_variables.end());
  words.insert(words.end(), {"/bin/sh", "-c", script});
  return words;
}

// srun ends as the command does, and by 1 or so of its own.
bool SrunNodeCommand::HasFailedItself(int wait_status) const {
  return !WIFEXITED(wait_status) ||
         (WEXITSTATUS(wait_status) != kAgentMissing && WEXITSTATUS(wait_status) != kInstallFailed);
}

}  // namespace dslaunch
