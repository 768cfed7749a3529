// The scripts by which a node's shell starts the agent, and installs it first if the node lacks
// this version.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"

namespace dslaunch {

// Return scripts for a node's /bin/sh: one line, without single quotes inside. Only hexadecimal,
// decimal and octal numbers, a machine name and the words of AgentArguments are inserted.
// CopyDialog (agent_copy.h) parses the output of the install script.
//
// The start script chooses among an agent and its others by the node's `uname -m`, which it prints
// first (HelloScanner::Machine); without others it prints nothing. The install script is for one
// agent.
std::string StartScript(const AgentBinary& agent, const AgentRole& role, std::string_view nonce);
// kAsked: the script requests the agent's bytes. kRaw: they arrive on stdin, uncompressed, without
// a request.
enum class CopyForm { kAsked, kRaw };
std::string InstallScript(const AgentBinary& agent, std::string_view sha256, std::string_view nonce,
                          CopyForm form = CopyForm::kAsked);

// Returns the agent's folder on a node, for messages.
std::string NodeFolderOf(const AgentBinary& agent);

// Returns the error for a node whose agent is of the build `build_id` instead of `agent`'s.
std::string OtherBuildText(const AgentBinary& agent, const std::string& build_id);

// The data by which agents that call back find the front end.
struct CallBackStart {
  std::string nonce;  // nonce of this start
  std::string place;  // a constant word that the node's shell or the launcher replaces
  std::string pin;
  // Front end's addresses: "10.0.0.1:4711", IPv6 without brackets.
  std::vector<std::string> endpoints;
};

// An agent's file for nodes that lack it.
struct OfferedAgent {
  AgentBinary agent;
  std::string sha256;
  std::string ticket;  // ticket for which the front end sends it
};

// Returns the script for all nodes of a launcher. It fetches the agent for the node's machine type
// if it is missing, and starts it to call back. Precondition: `agents` is not empty.
std::string CallBackScript(const std::vector<OfferedAgent>& agents, const AgentRole& role,
                           const CallBackStart& start);

// Quotes a script as a command for a node's login shell, so that sh, bash, zsh, fish and csh read
// it alike.
std::string ForLoginShell(const std::string& script);

// Exit codes of the scripts: the node has no usable agent of this version, or it cannot be
// installed.
inline constexpr int kAgentMissing = 97;
inline constexpr int kInstallFailed = 98;

}  // namespace dslaunch
