// Declares the system's ssh as a program that runs commands on nodes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/transport/node_command.h"
#include "cli/transport/ssh/ssh_configs.h"

namespace dslaunch {

// Runs commands by ssh. `words` are the absolute path of ssh, or of a program with the same command
// line, followed by options. `configs` caches ssh_config and may be shared with other objects.
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

}  // namespace dslaunch
