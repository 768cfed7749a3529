// Determines the state of a job for `dslaunch ps`, from the job's record and its nodes' answers.
// All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/core/job_goodput.h"
#include "cli/session/job_record.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// The answer of a node about a job.
struct NodeAnswer {
  std::optional<pb::JobSight> sight;  // answer of the node; nullopt if the node could not be asked
  std::string reason;                 // reason why `sight` is nullopt
};

struct JobView {
  enum class State {
    kFrontEnd,     // a front end is running; the nodes are not asked
    kRunning,      // the job is detached and running
    kEnded,        // the job has ended with exit_code
    kStray,        // processes are left without an agent
    kUnreachable,  // not all nodes could be asked, and no other node reports a running job
    kLost,         // no process is running, and no record shows how the job ended
  };
  // A checkpoint in memory with the states of all ranks.
  struct Copy {
    int64_t step = -1;  // step of the copy; -1 if a rank has not made a copy
    int64_t unix_ms = 0;
  };
  JobRecord record;
  State state = State::kLost;
  std::string detail;  // sentence that explains the state; may be empty
  int exit_code = 0;
  int64_t ended_unix_ms = 0;
  int ranks = 0;               // number of ranks; 0 if unknown
  int64_t step = -1;           // newest step; -1 if no step was reported
  int64_t total_steps = 0;     // planned number of steps; 0 if unknown
  int64_t stop_within_ms = 0;  // longest duration of a stop; 0 if unknown
  // Times of the ranks by use, summed over the nodes that answered; only for detached jobs.
  std::optional<Goodput> goodput = {};
  std::optional<Copy> copy = {};  // newest copy in memory; nullopt if unknown
  // Record of a node about the job's end, for kEnded if the nodes were asked; otherwise nullopt.
  std::optional<pb::JobResult> result = {};
  size_t result_node = 0;  // index of the node that gave `result`
};

// Returns the job with the id `text`, the newest job for "last", or the only job whose id contains
// `text`. Errors are kUsage and name the most similar id and the command that lists all jobs.
Result<JobRecord> FindJob(const std::vector<JobRecord>& records, const std::string& text);

// Returns the authoritative result: the result of a node that received the final status, else a
// result that reports a failure. Returns null if `results` is empty.
const pb::JobResult* ChooseResult(const std::vector<const pb::JobResult*>& results);

// Derives the state of the job. `answers` are indexed by node, and ignored if the record has the
// end or the front end is alive.
JobView MakeJobView(const JobRecord& record, bool front_end_alive,
                    const std::vector<NodeAnswer>& answers);

// Returns the state as shown in tables, such as "running" or "ended (137)".
std::string StateText(const JobView& view);

// Returns DurationText of `ms` without fractions of seconds.
std::string WholeDuration(int64_t ms);

// Returns the progress such as "31/100"; "-" if no step was reported.
std::string StepText(const JobView& view);

// Returns the newest copy in memory as text, such as "step 20, 12 s ago"; empty if no copy is
// known.
std::string CopyText(const JobView& view, int64_t now_unix_ms);

// Least number of columns in which JobTable shows a command.
inline constexpr size_t kLeastCommandColumns = 20;
// Returns a header and a line for each job, each followed by a newline. Commands are cut so that
// lines fit `width` columns (0 for no limit), but at least kLeastCommandColumns of each command
// are shown.
std::string JobTable(const std::vector<JobView>& views, int64_t now_unix_ms, size_t width);

// Returns the jobs as a JSON array of objects, with a newline at the end.
std::string JobsJson(const std::vector<JobView>& views);

}  // namespace dslaunch
