// Chooses what this process computes on, and loads the library with the CUDA part of the trainer.
#pragma once

#include <string>

#include "proto/contract/worker_env.h"
#include "trainer/device/accelerator.h"
#include "trainer/device/device_choice.h"

namespace dslaunch {

// Call it before any other use of LibTorch, which checks only once whether it has CUDA. Throws
// TrainError kUnavailable with a hint; rank 0 prints a notice if the choice may be unexpected.
RankDevice SelectDevice(DeviceKind asked, const WorkerEnv& env);

// The library at `path`. Throws TrainError kUnavailable where it cannot be loaded or is of another
// build, naming both.
Accelerator& LoadCudaPlugin(const std::string& path);

}  // namespace dslaunch
