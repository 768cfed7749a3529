// Builds the scripts with which a node's shell starts the agent, and first installs it if the node
// lacks this version.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"

namespace dslaunch {

// Returns a script for a node's /bin/sh: one line, without single quotes inside. Only hexadecimal,
// decimal and octal numbers, a machine name and the words of AgentArguments are inserted.
// CopyDialog (agent_copy.h) parses the output of the install script.
//
// The start script of an agent with `others` chooses among them by the node's `uname -m` and prints
// that type first (see HelloScanner::Machine). Without `others` the script prints nothing. The
// install script installs one agent and ignores its `others`.
std::string StartScript(const AgentBinary& agent, const AgentRole& role, std::string_view nonce);
// The way in which the install script gets the agent's bytes. kAsked: the script requests them.
// kRaw: they arrive on stdin, uncompressed, without a request.
enum class CopyForm { kAsked, kRaw };
std::string InstallScript(const AgentBinary& agent, std::string_view sha256, std::string_view nonce,
                          CopyForm form = CopyForm::kAsked);

// Returns the agent's folder on a node as shown in messages.
std::string NodeFolderOf(const AgentBinary& agent);

// Returns the error text for a node whose agent has the build id `build_id` instead of `agent`'s.
std::string OtherBuildText(const AgentBinary& agent, const std::string& build_id);

// The data with which an agent that calls back finds and identifies itself to the front end.
struct CallBackStart {
  std::string nonce;  // nonce of this start of the job
  // Constant word that the node's shell or the launcher replaces by the node's place.
  std::string place;
  std::string pin;
  // Addresses of the front end, such as "10.0.0.1:4711"; IPv6 without brackets.
  std::vector<std::string> endpoints;
};

// An agent's file that nodes without it can fetch from the front end.
struct OfferedAgent {
  AgentBinary agent;
  std::string sha256;
  std::string ticket;  // secret with which a node requests the file from the front end
};

// Returns the script that a launcher runs on all its nodes. The script fetches the agent for the
// node's machine type if it is missing, then starts the agent, which calls back. Precondition:
// `agents` is not empty.
std::string CallBackScript(const std::vector<OfferedAgent>& agents, const AgentRole& role,
                           const CallBackStart& start);

// Quotes a script as a command for a node's login shell, so that sh, bash, zsh, fish and csh read
// it alike.
std::string ForLoginShell(const std::string& script);

// Exit codes of the scripts. kAgentMissing: the node has no usable agent of this version.
// kInstallFailed: the agent cannot be installed.
inline constexpr int kAgentMissing = 97;
inline constexpr int kInstallFailed = 98;

}  // namespace dslaunch
