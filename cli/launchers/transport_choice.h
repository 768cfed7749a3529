// Which transport leads to the nodes of a job.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/launchers/engine_command.h"
#include "cli/request/launch_options.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/transport.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

struct TransportChoice {
  Launcher launcher = Launcher::kSsh;  // kPerNode: of node 0, this machine
  // As LaunchPlan's: for ExecNodeCommand, or the words of an engine that starts all nodes at once.
  std::vector<std::string> exec_command = {};
  SshOptions ssh = {};
  std::vector<NodeTarget> nodes = {};  // that such an engine is to start at once; others one by one
  std::vector<std::string> ssh_command = {};            // --ssh_command's words, for relays
  size_t fanout = 0;                                    // RelayFanout's
  std::map<std::string, SlurmShare> slurm_shares = {};  // of all nodes of the allocation, by host
  std::string network_interface = {};  // of this machine, where such nodes' agents connect to
};

// kUsage: exec_command cannot be used, or not for these nodes.
Result<std::unique_ptr<Transport>> MakeTransport(const TransportChoice& choice,
                                                 const AgentBinary& agent, const AgentRole& role);

}  // namespace dslaunch
