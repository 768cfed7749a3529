// NVIDIA's GPUs as the driver's own library (NVML) knows them. It is loaded for the question only:
// most machines lack it.
#pragma once

#include <string>

#include "base/deadline.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// `library` is found as the dynamic loader finds it; without it the answer is empty, which is no
// trouble. Blocks for `patience` at most: a broken GPU can hold up the driver for ever, in a thread
// that is then left behind. `visible` is not filled.
pb::Gpus ReadGpus(const std::string& library, milliseconds patience);

}  // namespace dslaunch
