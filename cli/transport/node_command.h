// Programs of this machine that run a command on a node and connect its stdin and stdout: the
// system's ssh, kubectl exec, srun, and any other.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/transport/ssh_configs.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

// How such a program is called, and what its end means. Thread-safe.
class NodeCommand {
 public:
  virtual ~NodeCommand() = default;

  // The arguments that run `script` by the node's /bin/sh. No shell of this machine reads them.
  virtual std::vector<std::string> CommandLine(const NodeTarget& target,
                                               const std::string& script) const = 0;

  // What nodes that are reached through the same sshd share, so that it is not asked by all at
  // once; empty: nothing to wait for.
  virtual std::string GateName(const NodeTarget& target, Deadline deadline) const = 0;

  // Whether it is the program that failed, by its wait status, and not what it ran on the node.
  virtual bool HasFailedItself(int wait_status) const = 0;

  // A command line by which the user can try the same, for messages.
  virtual std::string TryThis(const NodeTarget& target) const = 0;

  // The program's name, for messages.
  virtual std::string Name() const = 0;
};

// `words`: the absolute path of ssh, or of a program with its command line, and options for it.
// `configs`: what ssh_config says, shared with others.
class SshNodeCommand : public NodeCommand {
 public:
  explicit SshNodeCommand(std::vector<std::string> words,
                          std::shared_ptr<SshConfigs> configs = std::make_shared<SshConfigs>())
      : words_(std::move(words)), configs_(std::move(configs)) {}

  std::vector<std::string> CommandLine(const NodeTarget& target,
                                       const std::string& script) const override;
  std::string GateName(const NodeTarget& target, Deadline deadline) const override;
  bool HasFailedItself(int wait_status) const override;
  std::string TryThis(const NodeTarget& target) const override;
  std::string Name() const override;

 private:
  const std::vector<std::string> words_;
  const std::shared_ptr<SshConfigs> configs_;
};

// A program of PATH and its arguments, as of --exec_command: in each, {node} is the node's host,
// {user} its user, and {index} its number in the job. The command for the node follows as separate
// arguments.
class ExecNodeCommand : public NodeCommand {
 public:
  // kUsage: there is no such program, no {node} or {index} in the words, or another {name}.
  static Result<std::unique_ptr<NodeCommand>> Make(std::vector<std::string> words);

  std::vector<std::string> CommandLine(const NodeTarget& target,
                                       const std::string& script) const override;
  std::string GateName(const NodeTarget&, Deadline) const override { return ""; }
  bool HasFailedItself(int wait_status) const override;
  std::string TryThis(const NodeTarget& target) const override;
  std::string Name() const override;

 private:
  explicit ExecNodeCommand(std::vector<std::string> words) : words_(std::move(words)) {}

  std::vector<std::string> WordsFor(const NodeTarget& target) const;

  const std::vector<std::string> words_;
};

}  // namespace dslaunch
