// Implements the transport for `--launcher local`, which starts a node's supervisor and agent on
// this machine.
#pragma once

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Starts the supervisor in a separate session, with this process's environment and a socketpair as
// its stdin and stdout. No other process is between the stream and the supervisor. Thread-safe.
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
