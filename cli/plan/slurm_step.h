// A step of Slurm's in which srun starts dslaunch on each node: the job's per-node style, of which
// Slurm knows all places.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/plan/slurm_allocation.h"
#include "cli/request/launch_options.h"

namespace dslaunch {

struct SlurmStep {
  std::string name;                // "12.0": the job's number and the step's
  std::vector<std::string> nodes;  // of the step, in Slurm's order
  int num_tasks = 0;
  int node_id = 0;  // of this process's node among them
};

// nullopt: this process is not one of several tasks. Pure. kBadInput names the variable that cannot
// be read.
Result<std::optional<SlurmStep>> ReadSlurmStep(const GetVariable& getenv);

// Whether the step says which node of a job this command is: nothing else says where the job runs.
bool IsPlacedBySlurm(const LaunchOptions& options);

// Makes this command that node. Node 0's is the step's first; the port follows from the step's
// name. kUsage: the step has several tasks on a node, or the options ask for another number of
// nodes or for a way to them.
Result<void> PlaceInStep(const SlurmStep& step, LaunchOptions& options);

}  // namespace dslaunch
