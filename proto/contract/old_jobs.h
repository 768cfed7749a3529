// Removes the folders of old jobs.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr int kJobsKeptDays = 90;

// Returns whether a folder name belongs to a job that was started more than kJobsKeptDays days ago.
// Names begin with "YYYYMMDD-HHMMSS-" in UTC. Pure.
bool IsOldJob(std::string_view name, std::time_t now);

// Removes up to `most` folders of jobs, oldest first, in which nothing has changed for
// kJobsKeptDays days and for whose ids `may_go` returns true. Returns the number of removed
// folders. Skips folders that cannot be removed. Precondition: `jobs_folder` was opened with
// OpenOwnFolder, so it belongs to the user.
size_t RemoveOldJobs(const std::string& jobs_folder, std::time_t now, size_t most,
                     const std::function<bool(const std::string& job_id)>& may_go);

}  // namespace dslaunch
