// Determines how the ranks of a node run: their program, environment, cores and devices.
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
  // NVIDIA devices of the ranks as in CUDA_VISIBLE_DEVICES, by local rank; empty without such
  // devices.
  std::vector<std::string> devices = {};
};

// The program and environment of a node's ranks, without the variables of each rank.
struct ProgramContext {
  // Program, with the working directory that --venv_script leaves.
  pb::Program program;
  Environment environment;
  pb::ShellLimits shell_limits;  // limits that --venv_script sets
  std::string notice;            // notice for the user; empty if there is none
};

// Returns how a program runs on this node: sources --venv_script, merges the environment, and
// activates the front end's Python environment. Fails as SourceScript() and
// EnterPythonEnvironment() do, and with kBadInput if the working directory is missing.
Result<ProgramContext> ContextOf(const pb::Program& program, const std::string& node_name);

class NodeProgram {
 public:
  // Returns the program with its files looked up and its environment prepared. Fails, naming the
  // node, if the program, a folder or a script is missing, or if the cores cannot be bound.
  static Result<NodeProgram> Resolve(const pb::PrepareRequest& prepare, const NodeTable& nodes);

  const ResolvedProgram& program() const { return program_; }
  const Environment& environment() const { return environment_; }
  // Returns a notice for the user; empty if there is none.
  const std::string& notice() const { return notice_; }

  // Returns the plan of one attempt's ranks, and creates their folders. `prepare` is the argument
  // of Resolve().
  Result<PlannedWorkers> Plan(const pb::PrepareRequest& prepare, const pb::Node& own_node,
                              const AttemptPlace& place, const JobFolder& folder) const;

 private:
  // Returns the bindings by slot; empty if no rank is bound. `devices` contains the names of the
  // slots' devices.
  Result<std::vector<RankBinding>> BindRanks(const pb::PrepareRequest& prepare,
                                             const pb::Node& own_node, const AttemptPlace& place,
                                             const std::vector<std::string>& devices) const;

  ResolvedProgram program_;
  Environment environment_;
  std::string notice_;
  pb::ShellLimits shell_limits_;
  // Network interface for the ranks (WorkerPlan).
  std::optional<std::string> network_interface_ = "";
};

// Fails with kUnavailable if this node does not have the network interface that was chosen.
Result<void> CheckNetworkInterface(const pb::PrepareRequest& prepare);

}  // namespace dslaunch
