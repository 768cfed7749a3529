// Determines how the ranks of a node run: program, environment, cores and devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/binding.h"
#include "agent/host/program.h"
#include "agent/node/worker_specs.h"
#include "base/error.h"
#include "proto/agent.pb.h"
#include "proto/rendezvous.pb.h"
#include "proto/wire/node_list.h"

namespace dslaunch {

struct PlannedWorkers {
  pb::SpawnWorkers specs;
  std::vector<std::string> notices;
  // NVIDIA devices of the ranks by local rank, as in CUDA_VISIBLE_DEVICES; empty if they have none.
  std::vector<std::string> devices = {};
};

// Describes how a program runs on this node, before the variables of each rank are added.
struct ProgramContext {
  pb::Program program;  // program in the working directory that --venv_script leaves
  Environment environment;
  pb::ShellLimits shell_limits;  // limits set by --venv_script
  std::string notice;            // notice for the user; usually empty
};

// Sources --venv_script, merges the environment and activates the front end's Python environment.
// Fails as SourceScript() and EnterPythonEnvironment() do, and with kBadInput if the working
// directory is missing.
Result<ProgramContext> ContextOf(const pb::Program& program, const std::string& node_name);

class NodeProgram {
 public:
  // Finds the program and prepares its environment. Fails, naming the node, if the program, a
  // folder or a script is missing, or if the cores cannot be bound.
  static Result<NodeProgram> Resolve(const pb::PrepareRequest& prepare, const NodeTable& nodes);

  const ResolvedProgram& program() const { return program_; }
  const Environment& environment() const { return environment_; }
  // Returns a notice for the user; empty if there is none.
  const std::string& notice() const { return notice_; }

  // Plans the ranks of one attempt and creates their folders. `prepare`: as for Resolve().
  Result<PlannedWorkers> Plan(const pb::PrepareRequest& prepare, const pb::Node& own_node,
                              const AttemptPlace& place, const JobFolder& folder) const;

 private:
  // Returns the bindings by slot; empty if no rank is bound. `devices`: the names of the slots'
  // devices.
  Result<std::vector<RankBinding>> BindRanks(const pb::PrepareRequest& prepare,
                                             const pb::Node& own_node, const AttemptPlace& place,
                                             const std::vector<std::string>& devices) const;

  ResolvedProgram program_;
  Environment environment_;
  std::string notice_;
  pb::ShellLimits shell_limits_;
  std::optional<std::string> network_interface_ = "";  // see WorkerPlan
};

// Fails with kUnavailable if this node lacks the network interface that was chosen.
Result<void> CheckNetworkInterface(const pb::PrepareRequest& prepare);

}  // namespace dslaunch
