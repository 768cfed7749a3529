// Describes how a past job ended, from the records of its front end and nodes. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/job_view.h"
#include "cli/output/summary_view.h"
#include "proto/agent.pb.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// The content of events.jsonl that concerns the whole job.
struct JobTrace {
  std::optional<JobSummary> end;  // the last recorded end; nullopt if there is none
  int world_size = 0;             // number of ranks of the newest attempt; 0 if unknown
  uint64_t attempt = 0;           // newest attempt that is recorded as started
  uint64_t ended_attempt = 0;     // newest attempt that is recorded as followed by another
  std::map<std::string, std::string> job_dirs;  // job folder by node
};
JobTrace ReadJobTrace(std::string_view events, const JobRecord& record);

// Returns the summary of a job that ended without a front end, from a node's record. It lacks the
// last lines of ranks (on this machine the caller reads them) and, except for the first cause, how
// ranks ended.
JobSummary SummarizeResult(const JobRecord& record, const pb::JobResult& result, size_t node,
                           const JobTrace& trace);

// Returns the starts and ends of attempts in a node's record that are not in the events, in the
// order of time.
struct TimedEvent {
  int64_t unix_ms = 0;
  pb::NodeEvent event;
};
std::vector<TimedEvent> MissingEvents(const pb::JobResult& result, const JobTrace& trace);

// Returns the output of `dslaunch describe`: the job, its state, and how it ended, with a newline
// after each line.
std::string DescribeJob(const JobView& view, const std::optional<JobSummary>& end,
                        const std::string& folder, int64_t now_unix_ms);

}  // namespace dslaunch
