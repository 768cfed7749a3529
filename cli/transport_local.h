// Starts a node's keeper and agent on this machine: what `--launcher local` uses.
#pragma once

#include "cli/agent_binary.h"
#include "cli/transport.h"

namespace dslaunch {

// Thread-safe. The keeper gets a session of its own and this process's environment; a socketpair is
// its stdin and stdout, so the stream has no one in between.
class LocalTransport : public Transport {
 public:
  explicit LocalTransport(AgentBinary agent) : agent_(std::move(agent)) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  const AgentBinary agent_;
};

}  // namespace dslaunch
