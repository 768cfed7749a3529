// Asks Slurm about a job.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// What `scontrol show job --details` prints about the job. Blocks for 10 s at most. The error is a
// fragment: "'scontrol' ended with ...".
Result<std::string> DescribeSlurmJob(const std::string& job_id);

}  // namespace dslaunch
