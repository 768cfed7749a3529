// Reaches all nodes by a launcher that starts an agent on each node, such as srun, mpirun or pdsh.
// The agents call back to this machine (cli/call_back/call_back_server.h), because such launchers
// connect the stdin of one node at most and mix the output of all nodes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cli/call_back/call_back_server.h"
#include "cli/launchers/start_all.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/agent_scripts.h"
#include "cli/transport/connect_step.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Starts a process of the launcher for all of Options::nodes on the first Connect to any of them. A
// later Connect to a node that was connected before, and a Connect to any other node, starts a
// separate process. Thread-safe.
class CallBackTransport : public Transport {
 public:
  struct Options {
    AgentBinary agent;
    LauncherProgram program;
    AgentRole role;
    std::vector<NodeTarget> nodes;  // nodes of the run, which CheckLauncherNodes has accepted
    size_t num_single = 0;          // number of nodes outside `nodes` that may connect concurrently
    // Interface whose addresses the nodes get; empty for all interfaces.
    std::string network_interface;
    // Receives each step of connecting as it begins; may be empty.
    std::function<void(ConnectStep)> on_step;
  };
  explicit CallBackTransport(Options options) : options_(std::move(options)) {}
  ~CallBackTransport() override;

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;

 private:
  class Run;
  class Link;
  struct Place {
    std::shared_ptr<Run> run;
    size_t index = 0;  // index of the node in the run
  };

  // Returns the run of the launcher that includes the node, and the node's index in that run. The
  // error text is a fragment of a sentence.
  Result<Place> Join(const NodeTarget& target);
  Result<std::shared_ptr<Run>> Start(const std::vector<NodeTarget>& nodes) DSL_REQUIRES(mutex_);
  Result<void> StartServer() DSL_REQUIRES(mutex_);
  Error Fail(const NodeTarget& target, const Error& error) const;

  const Options options_;
  Mutex mutex_;
  std::shared_ptr<CallBackServer> server_ DSL_GUARDED_BY(mutex_);
  std::vector<OfferedAgent> offered_ DSL_GUARDED_BY(mutex_);
  // Run of all nodes; null once all nodes have joined.
  std::shared_ptr<Run> common_ DSL_GUARDED_BY(mutex_);
  std::vector<bool> has_joined_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch
