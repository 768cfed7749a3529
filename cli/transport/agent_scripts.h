// Builds the scripts with which a node's shell starts the agent, and first installs it if the node
// lacks this version.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"

namespace dslaunch {

// Returns the script that starts the agent, for a node's /bin/sh: one line, without single quotes
// inside. Only hexadecimal, decimal and octal numbers, a machine name and the words of
// AgentArguments are inserted.
//
// If the agent has `others`, the script chooses among them by the node's `uname -m` and first
// prints that type, which HelloScanner::Machine() returns. Otherwise the script itself prints
// nothing.
std::string StartScript(const AgentBinary& agent, const AgentRole& role, std::string_view nonce);
// The way in which the install script gets the agent's bytes. kAsked: the script requests them.
// kRaw: they arrive on stdin, uncompressed, without a request.
enum class CopyForm { kAsked, kRaw };

// Returns the script that installs `agent`, in the same form. `sha256` is the digest of its file.
// CopyDialog (agent_copy.h) parses the output of the script. Ignores agent.others.
std::string InstallScript(const AgentBinary& agent, std::string_view sha256, std::string_view nonce,
                          CopyForm form = CopyForm::kAsked);

// Returns the agent's folder on a node as shown in messages.
std::string NodeFolderOf(const AgentBinary& agent);

// Returns the error text for a node whose agent has the build id `build_id` instead of `agent`'s.
std::string OtherBuildText(const AgentBinary& agent, const std::string& build_id);

// The data with which an agent connects back to the front end and identifies itself.
struct CallBackStart {
  std::string nonce;  // nonce of this start of the job
  // Constant word that the node's shell or the launcher replaces by the node's index or host.
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

// Exit code of a script if the node has no usable agent of this version.
inline constexpr int kAgentMissing = 97;
// Exit code of a script if the agent cannot be installed.
inline constexpr int kInstallFailed = 98;

}  // namespace dslaunch
