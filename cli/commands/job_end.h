// How a past job ended, from what its front end and its nodes recorded. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cli/commands/job_view.h"
#include "cli/output/summary_view.h"

namespace dslaunch {

// What events.jsonl says of a job as a whole.
struct JobTrace {
  std::optional<JobSummary> end;                // its last end; nullopt: none is recorded
  int world_size = 0;                           // of the newest attempt; 0: unknown
  std::map<std::string, std::string> job_dirs;  // by node
};
JobTrace ReadJobTrace(std::string_view events, const JobRecord& record);

// The closing block of a job that ended without a front end, as far as a node's record of it says:
// without the last lines of ranks (on this machine the caller reads them), and without how ranks
// ended besides the first cause.
JobSummary SummarizeResult(const JobRecord& record, const pb::JobResult& result, size_t node,
                           const JobTrace& trace);

// `dslaunch describe`: what the job is, its state, and how it ended; a newline after each line.
std::string DescribeJob(const JobView& view, const std::optional<JobSummary>& end,
                        const std::string& folder, int64_t now_unix_ms);

}  // namespace dslaunch
