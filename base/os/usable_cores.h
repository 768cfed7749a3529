// How much of this machine's CPUs this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dslaunch {

// The CPUs of its affinity mask (taskset, a cpuset, Slurm), ascending.
std::vector<int> UsableCpus();

// How many CPUs the content of a cgroup's cpu.max allows, rounded down but at least 1; nullopt: no
// limit. Pure.
std::optional<uint32_t> ParseCpuMax(std::string_view cpu_max);

// At least 1: the CPUs of the affinity mask, or fewer where a cgroup has a quota (docker --cpus).
// More threads than these only wait for each other.
int UsableCores();

}  // namespace dslaunch
