// Formats the state of a running job as JSON, for `dslaunch top --json`. All functions are pure.
#pragma once

#include <string>

#include "base/deadline.h"
#include "cli/top/job_model.h"

namespace dslaunch {

// Returns the state as a JSON object, without a final newline. Unknown values are null.
std::string TopJson(const JobModel& model, const std::string& job_id, Clock::time_point now);

}  // namespace dslaunch
