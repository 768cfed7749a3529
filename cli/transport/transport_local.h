// Starts a node's supervisor and agent on this machine: what `--launcher local` uses.
#pragma once

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Thread-safe. The supervisor gets a session of its own and this process's environment; a
// socketpair is its stdin and stdout, so nothing is between the stream and the
// supervisor.
class LocalTransport : public Transport {
 public:
  explicit LocalTransport(AgentBinary agent, AgentRole role = {})
      : agent_(std::move(agent)), role_(std::move(role)) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  const AgentBinary agent_;
  const AgentRole role_;
};

}  // namespace dslaunch
