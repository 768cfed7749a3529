// Which transport leads to the nodes of a job.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// The first of these that is said.
struct TransportChoice {
  std::vector<std::string> exec_command;  // as for ExecNodeCommand
  bool is_here = false;                   // every node is this machine
  SshOptions ssh;
};

// kUsage: exec_command cannot be used.
Result<std::unique_ptr<Transport>> MakeTransport(const TransportChoice& choice,
                                                 const AgentBinary& agent, const AgentRole& role);

}  // namespace dslaunch
