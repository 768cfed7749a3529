// By which variables a program of Slurm's knows its place in its step.
#pragma once

#include <array>
#include <string_view>

namespace dslaunch {

// Of an agent's step: its ranks must not take them for theirs.
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
