// The state of a job for `dslaunch ps`, from its record and its nodes' answers. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/session/job_record.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// One node's answer.
struct NodeAnswer {
  std::optional<pb::JobSight> sight;  // nullopt: the node could not be asked
  std::string reason;                 // why
};

struct JobView {
  enum class State {
    kFrontEnd,     // its front end runs; the nodes were not asked
    kRunning,      // detached
    kEnded,        // exit_code
    kStray,        // no agent, but processes
    kUnreachable,  // no node reports that it runs, and not every node could be asked
    kLost,         // nothing runs, and there is no record of how it ended
  };
  JobRecord record;
  State state = State::kLost;
  std::string detail;  // why, a sentence; often empty
  int exit_code = 0;
  int64_t ended_unix_ms = 0;
  int ranks = 0;               // 0: unknown
  int64_t step = -1;           // -1: none seen
  int64_t total_steps = 0;     // 0: unknown
  int64_t stop_within_ms = 0;  // how long a stop may take; 0: unknown
  // Of kEnded: the record of a node, where the nodes were asked; and which node.
  std::optional<pb::JobResult> result = {};
  size_t result_node = 0;
};

// The job that the user means: its id, a part of only one, or "last" (the newest). kUsage
// names the nearest id, and the command that lists all.
Result<JobRecord> FindJob(const std::vector<JobRecord>& records, const std::string& text);

// Of the results of a job's nodes the one that counts: of a node that received the final status,
// else of one that knows of a failure. Null for none.
const pb::JobResult* ChooseResult(const std::vector<const pb::JobResult*>& results);

// `answers` by node; unused when the record has the end or the front end is alive.
JobView MakeJobView(const JobRecord& record, bool front_end_alive,
                    const std::vector<NodeAnswer>& answers);

// "running", "ended (137)", ...
std::string StateText(const JobView& view);

// DurationText of whole seconds.
std::string WholeDuration(int64_t ms);

// "31/100"; "-" where none was seen.
std::string StepText(const JobView& view);

// A header and a line for each job, with a newline after each. Commands are cut so that a line has
// at most `width` columns, 0: no limit, but kLeastCommandColumns of each are shown.
inline constexpr size_t kLeastCommandColumns = 20;
std::string JobTable(const std::vector<JobView>& views, int64_t now_unix_ms, size_t width);

// An array of objects, with a newline at the end.
std::string JobsJson(const std::vector<JobView>& views);

}  // namespace dslaunch
