// What a node says of itself, for `dslaunch doctor` and `dslaunch hostfile write`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/inspect.pb.h"

namespace dslaunch {

// All but the times. Changes nothing on the node. Blocks for some times the request's patience at
// most, but where a disk does not answer.
pb::NodeInfo GetNodeInfo(const pb::NodeInfoRequest& request);

// How many CPUs the content of a cgroup's cpu.max allows, rounded down but at least 1; nullopt: no
// limit. Pure.
std::optional<uint32_t> ParseCpuMax(std::string_view cpu_max);

// This user's state folder for jobs, or the nearest folder above it that exists.
std::string NearestToJobsFolder();

}  // namespace dslaunch
