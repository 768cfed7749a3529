// Determines the state of a job for `dslaunch ps`, from its record and its nodes' answers. Pure.
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

// One node's answer.
struct NodeAnswer {
  std::optional<pb::JobSight> sight;  // nullopt if the node could not be asked
  std::string reason;                 // why `sight` is nullopt
};

struct JobView {
  enum class State {
    kFrontEnd,     // its front end runs; nodes are not asked
    kRunning,      // detached and running
    kEnded,        // ended with exit_code
    kStray,        // processes are left without an agent
    kUnreachable,  // no node reports a running job, and not all could be asked
    kLost,         // nothing runs, and no record shows how it ended
  };
  // A copy of all ranks' states in memory.
  struct Copy {
    int64_t step = -1;  // -1 if a rank has made none
    int64_t unix_ms = 0;
  };
  JobRecord record;
  State state = State::kLost;
  std::string detail;  // a sentence that explains the state; often empty
  int exit_code = 0;
  int64_t ended_unix_ms = 0;
  int ranks = 0;                        // 0 if unknown
  int64_t step = -1;                    // -1 if none was reported
  int64_t total_steps = 0;              // 0 if unknown
  int64_t stop_within_ms = 0;           // maximum time of a stop; 0 if unknown
  std::optional<Goodput> goodput = {};  // detached jobs: sum of the nodes that answered
  std::optional<Copy> copy = {};        // the newest; nullopt if unknown
  // For kEnded, if the nodes were asked: the record of a node, and the index of that node.
  std::optional<pb::JobResult> result = {};
  size_t result_node = 0;
};

// Finds the job by its id, by a part of one id only, or by "last" (the newest). Errors are kUsage
// and name the most similar id and the command that lists all.
Result<JobRecord> FindJob(const std::vector<JobRecord>& records, const std::string& text);

// Returns the authoritative result: one from a node that received the final status, else one that
// reports a failure. Null if there are no results.
const pb::JobResult* ChooseResult(const std::vector<const pb::JobResult*>& results);

// Derives the state. `answers` are by node, and unused if the record has the end or the front end
// is alive.
JobView MakeJobView(const JobRecord& record, bool front_end_alive,
                    const std::vector<NodeAnswer>& answers);

// Returns "running", "ended (137)", ...
std::string StateText(const JobView& view);

// Returns DurationText of whole seconds.
std::string WholeDuration(int64_t ms);

// Returns "31/100", or "-" if no step was reported.
std::string StepText(const JobView& view);

// Returns "step 20, 12 s ago", the newest copy in memory; empty if there is none.
std::string CopyText(const JobView& view, int64_t now_unix_ms);

// Returns a header and a line for each job, with a newline after each. Commands are cut to fit
// `width` columns (0 for no limit), but at least kLeastCommandColumns of each are shown.
inline constexpr size_t kLeastCommandColumns = 20;
std::string JobTable(const std::vector<JobView>& views, int64_t now_unix_ms, size_t width);

// Returns a JSON array of objects, with a newline at the end.
std::string JobsJson(const std::vector<JobView>& views);

}  // namespace dslaunch
