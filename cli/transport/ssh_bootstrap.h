// Starts the agent on a node over SSH, and installs it first where the node lacks this version.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/ssh_stream.h"

namespace dslaunch {

// The scripts that a node's /bin/sh gets: one line, without single quotes inside. Nothing but
// hexadecimal, decimal and octal numbers, a machine name and the words of AgentArguments is put
// into them. What the install script writes to stdout is read by CopyDialog (agent_copy.h).
std::string StartScript(const AgentBinary& agent, const AgentRole& role, std::string_view nonce);
// kRaw: the agent's bytes come on stdin as they are, without being asked for.
enum class CopyForm { kAsked, kRaw };
std::string InstallScript(const AgentBinary& agent, std::string_view sha256, std::string_view nonce,
                          CopyForm form = CopyForm::kAsked);

// Where the agent is on a node, for messages.
std::string NodeFolderOf(const AgentBinary& agent);

// How the agents of an engine that starts one program on all nodes find the front end.
struct EngineStart {
  std::string nonce;  // of this start
  std::string place;  // what a node's shell or the engine makes its place from; a constant
  std::string pin;
  std::vector<std::string> endpoints;  // of the front end: "10.0.0.1:4711", IPv6 without brackets
  std::string ticket;                  // for which it gives the agent's file to nodes that lack it
};

// The script for all nodes: the agent is fetched where it is missing, and connects.
std::string EngineScript(const AgentBinary& agent, std::string_view sha256, const AgentRole& role,
                         const EngineStart& start);

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
