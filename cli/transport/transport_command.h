// Implements the transport that reaches nodes by running programs on this machine or on a relay.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/child_link.h"
#include "cli/transport/child_process.h"
#include "cli/transport/connect_step.h"
#include "cli/transport/node_command.h"
#include "cli/transport/running_program.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Runs one process of the program for each node for the whole job, after a first process if the
// agent must be copied. No local shell parses its arguments, and the node's shell parses only the
// constants of agent_scripts.h. The program has no terminal, so it cannot ask the user. The program
// itself decides how to reach the node and to authenticate. Thread-safe.
class CommandTransport : public Transport {
 public:
  // Prepares to reach nodes by `command`. `on_step` is called when each step begins, on the thread
  // of Connect; may be empty.
  CommandTransport(AgentBinary agent, std::shared_ptr<const NodeCommand> command, AgentRole role,
                   std::function<void(ConnectStep)> on_step = {},
                   std::shared_ptr<ProgramStarter> starter = std::make_shared<LocalStarter>())
      : agent_(std::move(agent)),
        command_(std::move(command)),
        role_(std::move(role)),
        on_step_(std::move(on_step)),
        starter_(std::move(starter)) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

  // Sets the notice that NodeLink::Notice returns for links of this transport.
  void SetNotice(std::string notice) { notice_ = std::move(notice); }

  // Sets the text that is appended to every error.
  void SetHint(std::string hint) { hint_ = std::move(hint); }

 private:
  // Starts the agent and returns a link; null if the node lacks the agent. Sets `machine` to the
  // node's machine type, or to an empty string if unknown.
  Result<std::unique_ptr<ChildLink>> Start(const NodeTarget& target, Deadline deadline,
                                           std::string& machine) const;
  Result<void> Install(const NodeTarget& target, const AgentBinary& agent) const;
  // Returns false if the starter has no file of the agent, or has one that may be for another
  // machine type.
  Result<bool> InstallByStarter(const NodeTarget& target, const AgentBinary& agent) const;
  Result<std::unique_ptr<RunningProgram>> Run(const NodeTarget& target,
                                              const std::string& script) const;
  Error Fail(const NodeTarget& target, ExitCode code, const std::string& text) const;

  void Begin(ConnectStep step) const {
    if (on_step_) on_step_(step);
  }

  const AgentBinary agent_;
  const std::shared_ptr<const NodeCommand> command_;
  const AgentRole role_;
  const std::function<void(ConnectStep)> on_step_;
  const std::shared_ptr<ProgramStarter> starter_;
  std::string notice_;
  std::string hint_;
};

}  // namespace dslaunch
