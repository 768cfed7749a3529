// NVIDIA's GPUs as nvidia-smi has them, which comes with the driver wherever its library (NVML)
// does. The library itself cannot be loaded into an agent that is linked statically.
#pragma once

#include <string>
#include <string_view>

#include "base/deadline.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// The program's absolute path as this node's PATH has it; empty: most machines lack it.
std::string FindNvidiaSmi();

// Empty, without trouble, where `nvidia_smi` is empty. Blocks for `patience` at most: a broken GPU
// can hold up the driver, and so the program, for ever, in a thread that is then left behind.
// `visible` is not filled.
pb::Gpus ReadGpus(const std::string& nvidia_smi, milliseconds patience);

// The answers of the program, both of which may be anything:
// `gpus` to --query-gpu=driver_version,memory.total,memory.used,uuid,name
// --format=csv,noheader,nounits, with memory in MiB; `version` to --version, which old ones lack.
pb::Gpus ParseNvidiaSmi(std::string_view gpus, std::string_view version);

}  // namespace dslaunch
