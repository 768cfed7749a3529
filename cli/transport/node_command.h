// Defines programs that run a command on a node and connect its stdin and stdout: the system's ssh
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

// Builds the command line of such a program and interprets its exit status. Thread-safe.
class NodeCommand {
 public:
  virtual ~NodeCommand() = default;

  // Returns the program and arguments that run `script` by the node's /bin/sh. No shell on this
  // machine parses them.
  virtual std::vector<std::string> CommandLine(const NodeTarget& target,
                                               const std::string& script) const = 0;

  // Returns a name shared by nodes that are reached through the same sshd, whose concurrent logins
  // are limited; empty for no limit.
  virtual std::string GateName(const NodeTarget&, Deadline) const { return ""; }

  // Returns whether `wait_status` means that the program itself failed, not the command that it ran
  // on the node. The default is true except for the exit codes of a script without a usable agent.
  virtual bool HasFailedItself(int wait_status) const;

  // Returns a command line with which the user can reproduce the connection, for messages.
  virtual std::string TryThis(const NodeTarget& target) const = 0;

  // Returns the program's name, for messages.
  virtual std::string Name() const = 0;
};

// Returns the file name of the program `words[0]`, for NodeCommand::Name.
std::string ProgramName(const std::vector<std::string>& words);

// Runs a program from PATH with arguments, as given by --exec_command. In each argument, {node}
// stands for the node's host, {user} for its user, and {index} for its index in the job. The
// command for the node is appended as separate arguments.
class ExecNodeCommand : public NodeCommand {
 public:
  // Returns kUsage if the program does not exist, if no argument contains {node} or {index}, or if
  // an argument contains an unknown {name}.
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
