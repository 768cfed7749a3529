// Reaches all nodes by one program that starts one agent on each: mpirun, pdsh. The agents connect
// to this machine (cli/launchers/dial_server.h), because such programs give stdin to one node or
// none and mix the output of all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cli/launchers/dial_server.h"
#include "cli/launchers/engine_command.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// One process of the engine for the nodes that it was made for, from the first Connect to any of
// them; a process of its own for each later Connect to one of them, and for any other node.
// Thread-safe.
class EngineTransport : public Transport {
 public:
  struct Options {
    AgentBinary agent;
    EngineWords engine;
    AgentRole role;
    std::vector<NodeTarget> nodes;         // CheckEngineNodes(nodes)
    size_t num_single = 0;                 // how many others may connect at the same time
    std::string network_interface;         // as DialServer's
    std::function<void(SshStep)> on_step;  // may be empty; see SshOptions
  };
  explicit EngineTransport(Options options) : options_(std::move(options)) {}
  ~EngineTransport() override;

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  class Run;
  class Link;
  struct Place {
    std::shared_ptr<Run> run;
    size_t index = 0;  // in it
  };

  // The error is a fragment.
  Result<Place> Join(const NodeTarget& target);
  Result<std::shared_ptr<Run>> Start(const std::vector<NodeTarget>& nodes) DSL_REQUIRES(mutex_);
  Error Fail(const NodeTarget& target, const Error& error) const;

  const Options options_;
  Mutex mutex_;
  std::shared_ptr<DialServer> server_ DSL_GUARDED_BY(mutex_);
  std::string ticket_ DSL_GUARDED_BY(mutex_);
  std::string sha256_ DSL_GUARDED_BY(mutex_);
  std::shared_ptr<Run> common_ DSL_GUARDED_BY(mutex_);  // of all nodes, while some have not joined
  std::vector<bool> has_joined_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
