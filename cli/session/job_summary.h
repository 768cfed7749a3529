// Builds the closing block of a job from the messages about its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/core/job_state.h"
#include "cli/core/outcome.h"
#include "cli/output/summary_view.h"
#include "cli/plan/launch_plan.h"
#include "proto/contract/status_line.h"

namespace dslaunch {

EndCause::Kind ToKind(pb::Cause::Kind kind);

// Converts a cause. `node` is the name of the cause's node; empty if the cause has no node.
EndCause EndCauseOf(const pb::Cause& cause, const std::string& node);

// Keeps the newest evaluation of the lowest rank that reports evaluations.
class NewestEvaluation {
 public:
  void OnStatus(const pb::WorkerStatus& status);
  // Returns "step" and the metrics of the newest evaluation; nullopt before the first evaluation.
  const std::optional<EvaluationResults>& result() const { return result_; }

 private:
  std::optional<EvaluationResults> result_;
  uint32_t rank_ = UINT32_MAX;
};

// Returns a hint if a rank failed like breakpoint() and input() do with an empty stdin, and the
// rank's stdin was empty; else an empty string. `rank_0_reads` is true if rank 0 read this
// command's stdin.
std::string StdinHint(const EndCause& cause, bool rank_0_reads);

// Returns the summary of a job, without `result`. `job_dirs` has the path of the job's folder on
// each node; empty if the node did not report the path.
JobSummary SummarizeJob(const std::string& job_id, const LaunchPlan& plan,
                        const JobState& job_state, const JobEnd& end,
                        const std::vector<std::string>& job_dirs, Clock::duration duration);

}  // namespace dslaunch
