// Reaches nodes with another ssh program: the system's own, or one with its command line.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/child_link.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// One `PROGRAM OPTION... [-p PORT] [-l USER] -T HOST COMMAND` for each node, kept running as long
// as the job; another before it where the agent must be copied. No shell reads it on this side, and
// on the node only the constants of ssh_bootstrap.h. It has no terminal, so it cannot ask
// the user. Everything else of SSH, known_hosts too, is left to the program. Thread-safe.
class SshCommandTransport : public Transport {
 public:
  // options.command is the program's absolute path and the user's options for it.
  SshCommandTransport(AgentBinary agent, SshOptions options, AgentRole role)
      : agent_(std::move(agent)), options_(std::move(options)), role_(std::move(role)) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  // Null: the node lacks the agent.
  Result<std::unique_ptr<ChildLink>> Start(const NodeTarget& target, Deadline deadline) const;
  Result<void> Install(const NodeTarget& target, Deadline deadline) const;
  Result<std::unique_ptr<ChildProcess>> Run(const NodeTarget& target,
                                            const std::string& command) const;
  std::vector<std::string> CommandLine(const NodeTarget& target, const std::string& command) const;
  std::string GateName(const NodeTarget& target, Deadline deadline) const;
  Error Fail(const NodeTarget& target, ExitCode code, const std::string& text) const;

  void Begin(SshStep step) const {
    if (options_.on_step) options_.on_step(step);
  }

  const AgentBinary agent_;
  const SshOptions options_;
  const AgentRole role_;
};

}  // namespace dslaunch
