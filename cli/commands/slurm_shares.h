// From a plan to what srun asks for on its nodes.
#pragma once

#include <map>
#include <string>

#include "cli/launchers/engine_command.h"
#include "cli/plan/launch_plan.h"

namespace dslaunch {

// Of all nodes of Slurm's allocation, by host; empty: the plan does not use its nodes.
inline std::map<std::string, SlurmShare> SlurmSharesOf(const LaunchPlan& plan) {
  std::map<std::string, SlurmShare> shares;
  for (const SlurmNode& node : plan.slurm_nodes)
    shares[node.name] = {node.component, node.gpus, node.gres};
  return shares;
}

}  // namespace dslaunch
