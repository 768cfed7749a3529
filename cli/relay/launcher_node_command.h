// Declares a launcher's program as a relay calls it: for a single node, whose stdin and stdout the
// program connects.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/launchers/start_all.h"
#include "cli/transport/node_command.h"

namespace dslaunch {

class LauncherNodeCommand : public NodeCommand {
 public:
  // Uses `program` for all nodes. Precondition: the launcher's StartAll has a `node_command`.
  explicit LauncherNodeCommand(LauncherProgram program) : program_(std::move(program)) {}

  std::vector<std::string> CommandLine(const NodeTarget& target,
                                       const std::string& script) const override {
    return RowOf(program_.launcher).start_all->node_command(program_, target, script);
  }
  std::string TryThis(const NodeTarget& target) const override {
    return TryThisCommand(program_, target);
  }
  std::string Name() const override { return std::string(RowOf(program_.launcher).program); }

 private:
  const LauncherProgram program_;
};

}  // namespace dslaunch
