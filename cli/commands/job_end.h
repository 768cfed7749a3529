// Describes how a past job ended, from the records of its front end and nodes. All functions are
// pure.
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

// The events in events.jsonl that concern the whole job.
struct JobTrace {
  std::optional<JobSummary> end;  // newest recorded end; nullopt if no end is recorded
  int world_size = 0;             // number of ranks of the newest attempt; 0 if unknown
  uint64_t attempt = 0;           // newest attempt that is recorded as started
  uint64_t ended_attempt = 0;     // newest attempt after which another attempt is recorded
  // Path of the job's folder on each node, by node name.
  std::map<std::string, std::string> job_dirs;
};
JobTrace ReadJobTrace(std::string_view events, const JobRecord& record);

// Returns the summary of a job that ended without a front end, from the record of node `node`. The
// summary lacks the last lines of ranks, which the caller reads if they are on this machine. Except
// for the first cause, it also lacks how ranks ended.
JobSummary SummarizeResult(const JobRecord& record, const pb::JobResult& result, size_t node,
                           const JobTrace& trace);

// The start or end of an attempt, with its time.
struct TimedEvent {
  int64_t unix_ms = 0;
  pb::NodeEvent event;
};
// Returns the starts and ends of attempts that are in a node's record but not in `trace`, sorted
// by time.
std::vector<TimedEvent> MissingEvents(const pb::JobResult& result, const JobTrace& trace);

// Returns the output of `dslaunch describe`: the job, its state, and how it ended, with a newline
// after each line.
std::string DescribeJob(const JobView& view, const std::optional<JobSummary>& end,
                        const std::string& folder, int64_t now_unix_ms);

}  // namespace dslaunch
