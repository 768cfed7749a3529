// Lists the variables that give a program its place in a Slurm step.
#pragma once

#include <array>
#include <string_view>

namespace dslaunch {

// The variables of the agent's own Slurm step. Programs would otherwise use the agent's place as
// their own, so these variables are removed from the ranks' environment.
inline constexpr std::array<std::string_view, 15> kSlurmStepVariables = {
    "SLURM_PROCID",         "SLURM_LOCALID",
    "SLURM_NODEID",         "SLURM_NTASKS",
    "SLURM_NPROCS",         "SLURM_TASK_PID",
    "SLURM_GTIDS",          "SLURM_TASKS_PER_NODE",
    "SLURM_STEP_ID",        "SLURM_STEPID",
    "SLURM_STEP_NODELIST",  "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_DISTRIBUTION"};

}  // namespace dslaunch
