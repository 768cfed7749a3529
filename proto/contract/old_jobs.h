// The age limit of jobs' folders.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr int kJobsKeptDays = 90;

// Whether a folder of this name is a job's that was started longer ago than jobs are kept: names
// begin "YYYYMMDD-HHMMSS-", in UTC. Pure.
bool IsOldJob(std::string_view name, std::time_t now);

// Removes the folders of jobs in which nothing has changed for kJobsKeptDays, as far as `may_go`
// agrees to a job's id; `most` at most, the oldest first. Returns how many. What cannot be removed
// stays. Precondition: `jobs_folder` is the user's own (OpenOwnFolder).
size_t RemoveOldJobs(const std::string& jobs_folder, std::time_t now, size_t most,
                     const std::function<bool(const std::string& job_id)>& may_go);

}  // namespace dslaunch
