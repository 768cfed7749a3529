// Starts the agent on a node over SSH, and first installs it if the node lacks this version.
#pragma once

#include <memory>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/ssh/ssh_stream.h"

namespace dslaunch {

// Starts the agent in `role` and waits for its hello line, until `deadline` at most. Returns the
// command's stream, positioned just after that line. `stderr_tail` receives the command's stderr
// and must outlive the stream.
Result<std::unique_ptr<SshStream>> StartAgent(SshSession& session, const AgentBinary& agent,
                                              const AgentRole& role, TailBuffer& stderr_tail,
                                              Deadline deadline);

}  // namespace dslaunch
