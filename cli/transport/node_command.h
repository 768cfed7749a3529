// Programs that run a command on a node and connect its stdin and stdout: the system's ssh
// (cli/transport/ssh/ssh_node_command.h), kubectl exec, srun, and others.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

// How such a program is called, and how its end is interpreted. Thread-safe.
class NodeCommand {
 public:
  virtual ~NodeCommand() = default;

  // Returns the arguments that run `script` by the node's /bin/sh. No shell of this machine parses
  // them.
  virtual std::vector<std::string> CommandLine(const NodeTarget& target,
                                               const std::string& script) const = 0;

  // Returns a name shared by nodes that are reached through the same sshd, whose concurrent logins
  // are limited; empty for no limit.
  virtual std::string GateName(const NodeTarget&, Deadline) const { return ""; }

  // Returns whether the wait status means that the program itself failed, and not the command that
  // it ran on the node. By default, any end but a script's code for a missing agent.
  virtual bool HasFailedItself(int wait_status) const;

  // Returns a command line with which the user can reproduce the connection, for messages.
  virtual std::string TryThis(const NodeTarget& target) const = 0;

  // Returns the program's name, for messages.
  virtual std::string Name() const = 0;
};

// Returns the file name of the program, for NodeCommand::Name.
std::string ProgramName(const std::vector<std::string>& words);

// Runs a program of PATH with arguments, as given by --exec_command. In each argument, {node}
// stands for the node's host, {user} for its user, and {index} for its number in the job. The
// command for the node is appended as separate arguments.
class ExecNodeCommand : public NodeCommand {
 public:
  // Returns kUsage if there is no such program, if no word has {node} or {index}, or if a word has
  // another {name}.
  static Result<std::unique_ptr<NodeCommand>> Make(std::vector<std::string> words);

  std::vector<std::string> CommandLine(const NodeTarget& target,
                                       const std::string& script) const override;
  std::string TryThis(const NodeTarget& target) const override;
  std::string Name() const override;

 private:
  explicit ExecNodeCommand(std::vector<std::string> words) : words_(std::move(words)) {}

  std::vector<std::string> WordsFor(const NodeTarget& target) const;

  const std::vector<std::string> words_;
};

}  // namespace dslaunch
