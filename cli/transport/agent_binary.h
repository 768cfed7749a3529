// The dslaunch-agent file, which the front end starts locally and copies to nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct AgentBinary {
  std::string path;      // absolute
  std::string build_id;  // lower-case hex; names the version on the nodes
  std::string machine;   // machine type, as in `uname -m`
  uint64_t size_bytes = 0;
  // Absolute path of the folder on the nodes to which it is copied; empty for ~/.cache/dslaunch.
  std::string node_folder = {};
  // Agents of the same version for nodes of other machine types.
  std::vector<AgentBinary> others = {};
};

// Reads the properties of the agent at `path`.
Result<AgentBinary> ReadAgentBinary(const std::string& path);

// Returns the agents of `folder` for machine types other than `own_machine`: files named
// dslaunch-agent-MACHINE, sorted by name. They may lack the executable mode, because they are only
// copied. Fails if such a file is not an agent for MACHINE. Empty if the folder does not exist.
Result<std::vector<AgentBinary>> FindOtherAgents(const std::string& folder,
                                                 const std::string& own_machine);

// Returns the agent beside the running executable, with those in ../lib/dslaunch for other machine
// types.
Result<AgentBinary> FindAgentBinary();

// Returns the machine types of `agent` and its others, its own first.
std::vector<std::string> MachinesOf(const AgentBinary& agent);

// Returns which of `agent` and its others runs on nodes of type `machine`; nullopt if none does. An
// empty `machine` is unknown and gives `agent` itself.
std::optional<AgentBinary> AgentFor(const AgentBinary& agent, const std::string& machine);

// Returns whether `agent` or one of its others has this build id.
bool HasBuild(const AgentBinary& agent, const std::string& build_id);

// Returns the error for a node of type `machine`, which has no agent here. `machine` may be a
// shell's variable. Contains no quotes.
std::string NoAgentText(const AgentBinary& agent, const std::string& machine);

// Returns the SHA-256 of a file in lower-case hex.
Result<std::string> Sha256OfFile(const std::string& path);

}  // namespace dslaunch
