// Derives srun's resource requests from a plan.
#pragma once

#include <map>
#include <string>

#include "cli/launchers/engine_command.h"
#include "cli/plan/launch_plan.h"

namespace dslaunch {

// Returns the share of each node of the Slurm allocation, by host; empty if the plan does not use
// Slurm.
inline std::map<std::string, SlurmShare> SlurmSharesOf(const LaunchPlan& plan) {
  std::map<std::string, SlurmShare> shares;
  for (const SlurmNode& node : plan.slurm_nodes)
    shares[node.name] = {node.component, node.gpus, node.gres};
  return shares;
}

}  // namespace dslaunch
