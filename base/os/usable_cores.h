// Determines how many CPUs of this machine this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns the CPUs in this process's affinity mask (set by taskset, a cpuset or Slurm), ascending.
std::vector<int> UsableCpus();

// Returns the number of CPUs that a cgroup's cpu.max allows, rounded down but at least 1; nullopt
// if there is no limit. `cpu_max` is the content of that file. Pure.
std::optional<uint32_t> ParseCpuMax(std::string_view cpu_max);

// Returns the number of CPUs in the affinity mask, or fewer if a cgroup has a quota (docker
// --cpus); at least 1. More threads than that would only wait for each other.
int UsableCores();

}  // namespace dslaunch
