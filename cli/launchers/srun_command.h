// srun as a relay calls it: for one node, whose stdin and stdout it connects.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/launchers/engine_command.h"
#include "cli/transport/node_command.h"

namespace dslaunch {

class SrunNodeCommand : public NodeCommand {
 public:
  // `engine` is kSlurm's.
  explicit SrunNodeCommand(EngineWords engine) : engine_(std::move(engine)) {}

  std::vector<std::string> CommandLine(const NodeTarget& target,
                                       const std::string& script) const override;
  std::string GateName(const NodeTarget&, Deadline) const override { return ""; }
  bool HasFailedItself(int wait_status) const override;
  std::string TryThis(const NodeTarget& target) const override {
    return EngineTryThis(engine_, target);
  }
  std::string Name() const override { return "srun"; }

 private:
  const EngineWords engine_;
};

}  // namespace dslaunch
