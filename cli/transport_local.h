// Starts a node's keeper and agent on this machine: what `--launcher local` uses.
#pragma once

#include <string>

#include "cli/transport.h"

namespace dslaunch {

// Thread-safe. The keeper gets a session of its own and this process's environment; a socketpair is its stdin and
// stdout, so the stream has no one in between.
class LocalTransport : public Transport {
 public:
  explicit LocalTransport(std::string agent_path) : agent_path_(std::move(agent_path)) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  const std::string agent_path_;
};

}  // namespace dslaunch
