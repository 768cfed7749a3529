// Reads NVIDIA's GPUs through nvidia-smi, which is installed with the driver wherever its library
// (NVML) is. The library itself cannot be loaded into the statically linked agent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Returns the absolute path of nvidia-smi in this node's PATH; empty if there is none, as on most
// machines.
std::string FindNvidiaSmi();

// Runs `nvidia_smi` and returns its output. Errors are sentences that begin with "nvidia-smi: ".
// Blocks for little longer than `patience`. A broken GPU can block the driver and thus the program
// forever, so the program runs in a thread that is abandoned on timeout.
Result<std::string> AskNvidiaSmi(const std::string& nvidia_smi, std::vector<std::string> arguments,
                                 milliseconds patience);

// Removes and returns the next field of a line in CSV. With `last`, the field extends to the end,
// because a name may contain a comma.
std::string_view TakeCsvField(std::string_view& line, bool last = false);

// Converts a field in MiB to bytes. Returns 0 for "[N/A]", which GPUs that share the machine's
// memory report.
uint64_t BytesOfMebibytes(std::string_view field);

// Returns the report of `nvidia_smi` without `visible`. If the path is empty, returns an empty
// report without an error. Blocks as AskNvidiaSmi() does.
pb::Gpus ReadGpus(const std::string& nvidia_smi, milliseconds patience);

// Parses two outputs of nvidia-smi, neither of which is trusted. `gpus`: of
// --query-gpu=driver_version,memory.total,memory.used,uuid,name --format=csv,noheader,nounits, with
// memory in MiB. `version`: of --version; may be empty, because old versions lack it.
pb::Gpus ParseNvidiaSmi(std::string_view gpus, std::string_view version);

}  // namespace dslaunch
