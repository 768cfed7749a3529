// Finds and describes the dslaunch-agent file, which the front end starts locally and copies to
// nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct AgentBinary {
  std::string path;      // absolute path of the agent's file
  std::string build_id;  // build id in lower-case hex; names the version on the nodes
  std::string machine;   // machine type as printed by `uname -m`
  uint64_t size_bytes = 0;
  // Absolute path of the folder on the nodes to which the agent is copied; empty for
  // ~/.cache/dslaunch.
  std::string node_folder = {};
  // Agents of the same version for nodes of other machine types.
  std::vector<AgentBinary> others = {};
};

// Reads the build id, machine type and size of the agent at `path`. Fails with kNotFound if the
// file does not exist, kCannotExecute if it is not executable, or kBadInput if it is not an ELF
// file with a build id.
Result<AgentBinary> ReadAgentBinary(const std::string& path);

// Returns the agents of `folder` for machine types other than `own_machine`: files named
// dslaunch-agent-MACHINE, sorted by name. They may lack the executable mode, because they are only
// copied. Fails if such a file is not an agent for MACHINE. Returns an empty list if the folder
// does not exist.
Result<std::vector<AgentBinary>> FindOtherAgents(const std::string& folder,
                                                 const std::string& own_machine);

// Returns the agent beside the running executable, together with the agents in ../lib/dslaunch for
// other machine types.
Result<AgentBinary> FindAgentBinary();

// Returns the machine types of `agent` and of `agent.others`, the type of `agent` first.
std::vector<std::string> MachinesOf(const AgentBinary& agent);

// Returns `agent` or the member of `agent.others` that runs on nodes of type `machine`; nullopt if
// no such agent exists. An empty `machine` means unknown and returns `agent`.
std::optional<AgentBinary> AgentFor(const AgentBinary& agent, const std::string& machine);

// Returns whether `agent` or a member of `agent.others` has the build id `build_id`.
bool HasBuild(const AgentBinary& agent, const std::string& build_id);

// Returns the error text for a node of type `machine` for which no agent is available. `machine`
// may be a shell variable of a script. The text contains no quotes, so a script can quote it.
std::string NoAgentText(const AgentBinary& agent, const std::string& machine);

// Returns the SHA-256 of the file at `path` in lower-case hex. Returns kIo if the file cannot be
// read.
Result<std::string> Sha256OfFile(const std::string& path);

}  // namespace dslaunch
