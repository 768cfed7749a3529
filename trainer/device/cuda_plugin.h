// Chooses the device of this process, and loads the library with the CUDA part of the trainer.
#pragma once

#include <string>

#include "proto/contract/worker_env.h"
#include "trainer/device/accelerator.h"
#include "trainer/device/device_choice.h"

namespace dslaunch {

// Call it before any other use of LibTorch, which checks only once whether it has CUDA. Throws
// TrainError kUnavailable with a hint. Rank 0 prints a notice if the choice may be unexpected.
RankDevice SelectDevice(DeviceKind asked, const WorkerEnv& env);

// Loads the library at `path`. Throws TrainError kUnavailable, naming both builds, if it cannot be
// loaded or belongs to another build.
Accelerator& LoadCudaPlugin(const std::string& path);

}  // namespace dslaunch
