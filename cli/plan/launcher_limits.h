// What a way to the nodes cannot give, in words for users.
#pragma once

#include <string_view>
#include <vector>

#include "cli/request/launch_options.h"

namespace dslaunch {

// Sentences without a full stop; none: nothing is lacking.
inline std::vector<std::string_view> LimitsOf(Launcher launcher) {
  switch (launcher) {
    case Launcher::kLocal:
    case Launcher::kSsh:
      return {};
    case Launcher::kPerNode:
      return {"no --detach: the job ends with its commands",
              "the nodes are not reached by ps, logs and attach of another machine"};
    case Launcher::kExec:
      return {"logins, host keys and what a lost program means are its own affair"};
    case Launcher::kSlurm:
      return {"no --detach: the job ends with its allocation",
              "the nodes must be able to connect to this machine, as for srun"};
    case Launcher::kOpenMpi:
      return {"no --detach: agents end with mpirun",
              "the nodes must be able to connect to this machine",
              "one node that mpirun does not reach ends the start of all",
              "mpirun ends all nodes when it loses one, so no restart continues without it"};
    case Launcher::kPdsh:
      return {"no --detach: agents end with pdsh",
              "the nodes must be able to connect to this machine"};
  }
  return {};
}

}  // namespace dslaunch
