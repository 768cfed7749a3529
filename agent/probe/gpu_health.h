// Examines the state of NVIDIA's GPUs, as nvidia-smi reports it, before a job uses them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "proto/measure.pb.h"

namespace dslaunch {

// Bytes of used memory from which a GPU counts as not free. The driver itself uses some hundred MB.
inline constexpr uint64_t kFreeGpuUsesBytes = uint64_t{1} << 30;

struct GpuHealthReport {
  std::vector<pb::GpuHealth> gpus;
  std::string trouble;  // reason why the GPUs could not be examined; empty on success
};

// Runs `nvidia_smi`, an absolute path, repeatedly until the first `wanted` GPUs are free or `wait`
// has passed, and returns the last report. If the path is empty, returns an empty report. Blocks
// for at most `wait` and a few seconds.
GpuHealthReport ExamineGpus(const std::string& nvidia_smi, uint32_t wanted, milliseconds wait);

// Returns whether each of the first `wanted` GPUs uses less memory than kFreeGpuUsesBytes. Pure.
bool AreFree(const std::vector<pb::GpuHealth>& gpus, uint32_t wanted);

// Options with which nvidia-smi prints the state of each GPU, and the processes that use GPUs.
inline constexpr char kGpuHealthQuery[] =
    "--query-gpu=index,uuid,memory.total,memory.used,ecc.errors.uncorrected.volatile.total,"
    "retired_pages.pending,clocks_throttle_reasons.hw_thermal_slowdown,"
    "clocks_throttle_reasons.hw_power_brake_slowdown,clocks.max.sm";
inline constexpr char kGpuAppsQuery[] = "--query-compute-apps=gpu_uuid,pid,used_memory,name";
// Returns the state of the GPUs in the output of nvidia-smi, which is not trusted. `gpus` is the
// answer to kGpuHealthQuery, and `apps` the answer to kGpuAppsQuery. Pure.
std::vector<pb::GpuHealth> ParseGpuHealth(std::string_view gpus, std::string_view apps);

}  // namespace dslaunch
