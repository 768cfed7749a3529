// From the wire's words for the end of a job to the closing block.
#pragma once

#include <string>
#include <vector>

#include "cli/launch_plan.h"
#include "cli/outcome.h"
#include "proto/contract/deadline.h"

namespace dslaunch {

// `workers` in the order in which their ends became known; `job_dirs` by node.
std::string SummarizeJob(const LaunchPlan& plan, const JobEnd& end,
                         const std::vector<pb::WorkerEnded>& workers,
                         const std::vector<std::string>& job_dirs, Clock::duration duration);

}  // namespace dslaunch
