// The dslaunch-agent file that the front end starts here and copies to nodes.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace dslaunch {

struct AgentBinary {
  std::string path;      // absolute
  std::string build_id;  // lower-case hex; names its version on the nodes
  std::string machine;   // as `uname -m` says it
  uint64_t size_bytes = 0;
  // The folder on the nodes into which it is copied, absolute; empty: ~/.cache/dslaunch.
  std::string node_folder = {};
};

// Reads what identifies the agent at `path`.
Result<AgentBinary> ReadAgentBinary(const std::string& path);

// The agent beside the running executable.
Result<AgentBinary> FindAgentBinary();

// The SHA-256 of a file in lower-case hex.
Result<std::string> Sha256OfFile(const std::string& path);

}  // namespace dslaunch
