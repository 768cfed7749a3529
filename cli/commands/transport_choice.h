// Chooses the transport that reaches the nodes of a job.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/launchers/start_all.h"
#include "cli/request/launch_options.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/transport.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

struct TransportChoice {
  // Launcher of the job; for kPerNode, the transport leads to node 0, this machine.
  Launcher launcher = Launcher::kSsh;
  // Value of LaunchPlan::exec_command: the words of ExecNodeCommand, or the program that starts all
  // nodes at once.
  std::vector<std::string> exec_command = {};
  SshOptions ssh = {};
  // Nodes that the launcher starts at once; other nodes are started individually.
  std::vector<NodeTarget> nodes = {};
  std::vector<std::string> ssh_command = {};  // words of --ssh_command, for relays
  size_t fanout = 0;  // number of nodes that a relay reaches; 0 to use no relays
  std::map<std::string, SlurmShare> slurm_shares = {};  // Slurm's shares of the nodes, by host
  std::string network_interface = {};  // interface of this machine to which agents call back
};

// Returns the transport to the nodes of `choice`. Returns kUsage if the launcher's program is
// missing, cannot be used, or does not support these nodes.
Result<std::unique_ptr<Transport>> MakeTransport(const TransportChoice& choice,
                                                 const AgentBinary& agent, const AgentRole& role);

}  // namespace dslaunch
