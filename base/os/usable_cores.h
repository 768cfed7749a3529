// Determines how much of this machine's CPUs this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns the CPUs of this process's affinity mask (taskset, a cpuset, Slurm), in ascending order.
std::vector<int> UsableCpus();

// Returns the number of CPUs that the content of a cgroup's cpu.max allows, rounded down but at
// least 1; nullopt if there is no limit. Pure.
std::optional<uint32_t> ParseCpuMax(std::string_view cpu_max);

// Returns the number of CPUs in the affinity mask, or fewer if a cgroup has a quota (docker
// --cpus); at least 1. Threads beyond that number would only wait for each other.
int UsableCores();

}  // namespace dslaunch
