// Measures the speed of this machine's GPUs, for `dslaunch doctor --bench` and --preflight.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Implements `dslaunch-train bench devices`, which the agent starts (agent/probe/device_bench.h).
// Prints a line for each visible GPU, "device NUMBER GEMM TO FROM MEMORY", in whole numbers per
// second: operations of a product of bfloat16 matrices, bytes copied to the device and from the
// device with pinned memory, and bytes copied within the device's memory. Prints nothing without a
// GPU. Returns the exit code. Throws TrainError kUsage if `words` is not empty.
int RunBenchDevices(const std::vector<std::string>& words);

}  // namespace dslaunch
