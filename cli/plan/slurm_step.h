// Reads the Slurm step that started this command, if srun started one dslaunch on each node. Each
// of these commands then starts the ranks of its own node (per-node style), and Slurm's order of
// the nodes decides which command is node 0's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/plan/slurm_allocation.h"
#include "cli/request/launch_options.h"

namespace dslaunch {

struct SlurmStep {
  std::string name;                // numbers of the job and the step, such as "12.0"
  std::vector<std::string> nodes;  // nodes of the step, in Slurm's order
  int num_tasks = 0;               // number of tasks that srun started on all nodes
  int node_id = 0;                 // index in `nodes` of the node of this process
};

// Reads the step. Returns nullopt if this process is not one of several tasks. Fails with
// kBadInput, naming the variable, if a variable cannot be read. Has no side effects.
Result<std::optional<SlurmStep>> ReadSlurmStep(const GetVariable& getenv);

// Returns whether this command takes its node rank from the step, because no option names nodes.
bool IsPlacedBySlurm(const LaunchOptions& options);

// Sets options.per_node: the node rank is the node's index in the step, so node 0 is the first node
// of the step, and the port is derived from the step's name. Returns kUsage if the step has several
// tasks on a node, or if the options give a different number of nodes or a way to reach them.
Result<void> PlaceInStep(const SlurmStep& step, LaunchOptions& options);

}  // namespace dslaunch
