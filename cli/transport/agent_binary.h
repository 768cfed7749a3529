// The dslaunch-agent file, which the front end starts locally and copies to nodes.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace dslaunch {

struct AgentBinary {
  std::string path;      // absolute
  std::string build_id;  // lower-case hex; names the version on the nodes
  std::string machine;   // machine type, as in `uname -m`
  uint64_t size_bytes = 0;
  // Absolute path of the folder on the nodes to which it is copied; empty for ~/.cache/dslaunch.
  std::string node_folder = {};
};

// Reads the properties of the agent at `path`.
Result<AgentBinary> ReadAgentBinary(const std::string& path);

// Returns the agent beside the running executable.
Result<AgentBinary> FindAgentBinary();

// Returns the SHA-256 of a file in lower-case hex.
Result<std::string> Sha256OfFile(const std::string& path);

}  // namespace dslaunch
