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

// The scripts that a node's /bin/sh gets: one line, without single quotes inside. Nothing but
// hexadecimal and decimal numbers, a machine name and the words of AgentArguments is put into them.
std::string StartScript(std::string_view build_id, const AgentRole& role, std::string_view nonce);
std::string InstallScript(const AgentBinary& agent, std::string_view sha256);

// A script as a command for a node's login shell: sh, bash, zsh, fish and csh read it alike.
std::string ForLoginShell(const std::string& script);

// What the scripts exit with: the node has no usable agent of this version; it cannot be installed.
inline constexpr int kAgentMissing = 97;
inline constexpr int kInstallFailed = 98;

// Starts the agent in its role and waits for its hello line. The stream stands just behind it.
Result<std::unique_ptr<SshStream>> StartAgent(SshSession& session, const AgentBinary& agent,
                                              const AgentRole& role, TailBuffer& stderr_tail,
                                              Deadline deadline);

}  // namespace dslaunch
