// Starts the agent on a node over SSH, and installs it first where the node lacks this version.
#pragma once

#include <memory>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/ssh/ssh_stream.h"

namespace dslaunch {

// Starts the agent in its role and waits for its hello line. The returned stream is positioned just
// after that line.
Result<std::unique_ptr<SshStream>> StartAgent(SshSession& session, const AgentBinary& agent,
                                              const AgentRole& role, TailBuffer& stderr_tail,
                                              Deadline deadline);

}  // namespace dslaunch
