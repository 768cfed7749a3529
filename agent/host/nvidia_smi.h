// Reads NVIDIA's GPUs through nvidia-smi, which the driver installs together with its library
// (NVML). The statically linked agent cannot load that library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Returns the absolute path of nvidia-smi in this node's PATH; empty if it is not installed.
std::string FindNvidiaSmi();

// Runs `nvidia_smi` and returns its output. Error messages are sentences that begin with
// "nvidia-smi: ". Blocks for little longer than `patience`. A broken GPU can block the driver and
// thus the program forever, so the program runs in a thread that is abandoned on timeout.
Result<std::string> AskNvidiaSmi(const std::string& nvidia_smi, std::vector<std::string> arguments,
                                 milliseconds patience);

// Removes and returns the first field of a line in CSV. If `last`, the field extends to the end of
// the line, because a name may contain a comma.
std::string_view TakeCsvField(std::string_view& line, bool last = false);

// Returns a field in MiB as bytes. Returns 0 for "[N/A]", which GPUs report that share the
// machine's memory.
uint64_t BytesOfMebibytes(std::string_view field);

// Returns the report of `nvidia_smi`, without `visible`. If the path is empty, returns an empty
// report without an error. Blocks as AskNvidiaSmi() does.
pb::Gpus ReadGpus(const std::string& nvidia_smi, milliseconds patience);

// Returns the report in two outputs of nvidia-smi, neither of which is trusted. `gpus` is the
// output of --query-gpu=driver_version,memory.total,memory.used,uuid,name
// --format=csv,noheader,nounits, with memory in MiB. `version` is the output of --version; empty
// for old versions, which lack this option.
pb::Gpus ParseNvidiaSmi(std::string_view gpus, std::string_view version);

}  // namespace dslaunch
