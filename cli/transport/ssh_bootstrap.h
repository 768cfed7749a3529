// Starts the agent on a node over SSH, and installs it first where the node lacks this version.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/ssh_stream.h"

namespace dslaunch {

// The commands that a node's login shell gets: one line, without single quotes inside, so that sh,
// bash, zsh, fish and csh read them alike. Nothing but hexadecimal and decimal numbers, a machine
// name and the words of AgentArguments is put into them.
std::string StartCommand(std::string_view build_id, const AgentRole& role, std::string_view nonce);
std::string InstallCommand(const AgentBinary& agent, std::string_view sha256);

// What the start command exits with when the node has no usable agent of this version.
inline constexpr int kAgentMissing = 97;

// Starts the agent in its role and waits for its hello line. The stream stands just behind it.
Result<std::unique_ptr<SshStream>> StartAgent(SshSession& session, const AgentBinary& agent,
                                              const AgentRole& role, TailBuffer& stderr_tail,
                                              Deadline deadline);

}  // namespace dslaunch
