// NVIDIA's GPUs as reported by nvidia-smi, which is installed with the driver wherever its library
// (NVML) is. The library itself cannot be loaded into the statically linked agent.
#pragma once

#include <string>
#include <string_view>

#include "base/deadline.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Returns the absolute path of nvidia-smi in this node's PATH; empty if there is none, as on most
// machines.
std::string FindNvidiaSmi();

// Runs `nvidia_smi` and returns its report without `visible`. If the path is empty, returns an
// empty report without an error. Blocks for at most `patience`: a broken GPU can block the driver
// and thus the program forever, in a thread that is then abandoned.
pb::Gpus ReadGpus(const std::string& nvidia_smi, milliseconds patience);

// Parses output of the program, neither of which is trusted: `gpus` of
// --query-gpu=driver_version,memory.total,memory.used,uuid,name --format=csv,noheader,nounits, with
// memory in MiB; `version` of --version, which old versions lack.
pb::Gpus ParseNvidiaSmi(std::string_view gpus, std::string_view version);

}  // namespace dslaunch
