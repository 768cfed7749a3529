// Queries Slurm for the description of a job.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// Returns the output of `scontrol show job --details` for the job. Blocks for at most 10 s. The
// error is a fragment of a sentence: "'scontrol' ended with ...".
Result<std::string> DescribeSlurmJob(const std::string& job_id);

}  // namespace dslaunch
