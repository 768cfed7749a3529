// Chooses this process's device, and loads the library with the CUDA part of the trainer.
#pragma once

#include <string>

#include "proto/contract/worker_env.h"
#include "trainer/device/accelerator.h"
#include "trainer/device/device_choice.h"

namespace dslaunch {

// Chooses and selects this process's device, loading the CUDA library if the device is a GPU.
// LibTorch checks only once whether it has CUDA, so call it before any other use of LibTorch. Rank
// 0 prints a notice if the choice may be unexpected. Throws TrainError kUnavailable with a hint if
// the requested device cannot be used.
RankDevice SelectDevice(DeviceKind asked, const WorkerEnv& env);

// Loads the library at `path`. Throws TrainError kUnavailable if the library cannot be loaded or
// belongs to another build; the message then names both builds.
Accelerator& LoadCudaPlugin(const std::string& path);

}  // namespace dslaunch
