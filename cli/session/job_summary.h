// Builds the closing block from the messages about the end of a job.
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

// Returns the content of a cause; `node` is the name of its node, empty if it has none.
EndCause EndCauseOf(const pb::Cause& cause, const std::string& node);

// Keeps the newest evaluation of the lowest rank that reports evaluations.
class NewestEvaluation {
 public:
  void OnStatus(const pb::WorkerStatus& status);
  // "step" and the metrics; nullopt before the first evaluation.
  const std::optional<EvaluationResults>& result() const { return result_; }

 private:
  std::optional<EvaluationResults> result_;
  uint32_t rank_ = UINT32_MAX;
};

// Returns a hint if a rank failed like breakpoint() and input() do with an empty stdin, and its
// stdin was empty; else an empty string. `rank_0_reads`: whether rank 0 read this command's stdin.
std::string StdinHint(const EndCause& cause, bool rank_0_reads);

// Does not set `result`. `job_dirs` has the job's folder on each node; empty if the node did not
// report it.
JobSummary SummarizeJob(const std::string& job_id, const LaunchPlan& plan,
                        const JobState& job_state, const JobEnd& end,
                        const std::vector<std::string>& job_dirs, Clock::duration duration);

}  // namespace dslaunch
