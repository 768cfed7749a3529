// A Slurm step in which srun starts dslaunch on each node, which is the per-node style with places
// assigned by Slurm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/plan/slurm_allocation.h"
#include "cli/request/launch_options.h"

namespace dslaunch {

struct SlurmStep {
  std::string name;                // "12.0": the numbers of the job and the step
  std::vector<std::string> nodes;  // nodes of the step, in Slurm's order
  int num_tasks = 0;
  int node_id = 0;  // index of this process's node in `nodes`
};

// Reads the step. nullopt: this process is not one of several tasks. Pure. kBadInput names the
// variable that cannot be read.
Result<std::optional<SlurmStep>> ReadSlurmStep(const GetVariable& getenv);

// Whether the step decides which node of the job this command is, because no option names nodes.
bool IsPlacedBySlurm(const LaunchOptions& options);

// Sets options.per_node to this command's place in the step. Node 0 is the step's first node; the
// port follows from the step's name. kUsage: the step has several tasks on a node, or the options
// give another number of nodes or a way to reach them.
Result<void> PlaceInStep(const SlurmStep& step, LaunchOptions& options);

}  // namespace dslaunch
