// Chooses what this process computes on, and loads the library with the CUDA part of the trainer.
#pragma once

#include <string>

#include "proto/contract/worker_env.h"
#include "trainer/device/accelerator.h"
#include "trainer/device/device_choice.h"

namespace dslaunch {

// Before LibTorch is used for anything else, since it asks only once whether it has CUDA. Throws
// TrainError kUnavailable with the way out; prints a notice where rank 0 may not expect its choice.
RankDevice SelectDevice(DeviceKind asked, const WorkerEnv& env);

// The library at `path`. Throws TrainError kUnavailable where it cannot be loaded or is of another
// build, naming both.
Accelerator& LoadCudaPlugin(const std::string& path);

}  // namespace dslaunch
