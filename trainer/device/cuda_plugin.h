// Chooses this process's device, and loads the library with the CUDA part of the trainer.
#pragma once

#include <string>

#include "proto/contract/worker_env.h"
#include "trainer/device/accelerator.h"
#include "trainer/device/device_choice.h"

namespace dslaunch {

// Chooses and selects this process's device, loading the library if the device is a GPU. Call it
// before any other use of LibTorch, because LibTorch checks only once whether it has CUDA. Rank 0
// prints a notice if the choice may be unexpected. Throws TrainError kUnavailable with a hint.
RankDevice SelectDevice(DeviceKind asked, const WorkerEnv& env);

// Loads the library at `path`. Throws TrainError kUnavailable if the library cannot be loaded or
// belongs to another build; the message then names both builds.
Accelerator& LoadCudaPlugin(const std::string& path);

}  // namespace dslaunch
