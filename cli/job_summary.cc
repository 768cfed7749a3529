#include "cli/job_summary.h"

#include "cli/summary_view.h"

namespace dslaunch {
namespace {

EndCause::Kind ToKind(pb::Cause::Kind kind) {
  switch (kind) {
    case pb::Cause::NONE:
      return EndCause::Kind::kNone;
    case pb::Cause::WORKER_EXIT:
      return EndCause::Kind::kWorkerExit;
    case pb::Cause::WORKER_SIGNAL:
      return EndCause::Kind::kWorkerSignal;
    case pb::Cause::START_FAILED:
      return EndCause::Kind::kStartFailed;
    case pb::Cause::NODE_LOST:
      return EndCause::Kind::kNodeLost;
    case pb::Cause::TIMED_OUT:
      return EndCause::Kind::kTimedOut;
    case pb::Cause::INTERRUPTED:
      return EndCause::Kind::kInterrupted;
    case pb::Cause::FRONT_END_LOST:
      return EndCause::Kind::kFrontEndLost;
    default:
      return EndCause::Kind::kInternal;
  }
}

}  // namespace

std::string SummarizeJob(const LaunchPlan& plan, const JobEnd& end,
                         const std::vector<pb::WorkerEnded>& workers,
                         const std::vector<std::string>& job_dirs, Clock::duration duration) {
  JobSummary summary;
  summary.num_nodes = static_cast<int>(plan.nodes.size());
  summary.world_size = plan.world_size;
  summary.duration_s = std::chrono::duration<double>(duration).count();
  summary.exit_code = end.exit_code;
  summary.remarks = end.remarks;
  summary.logs = plan.nodes.front().name + ":" + job_dirs.front();

  const pb::Cause& cause = end.cause;
  summary.cause.kind = ToKind(cause.kind());
  summary.cause.node = plan.nodes.at(cause.node_index()).name;
  summary.cause.rank = cause.rank();
  summary.cause.local_rank = cause.local_rank();
  summary.cause.exit_code = cause.exit_code();
  summary.cause.signal = cause.signal();
  summary.cause.message = cause.message();
  std::vector<bool> reported(static_cast<size_t>(plan.world_size));
  for (const pb::WorkerEnded& worker : workers) {
    const auto rank = static_cast<int>(worker.rank());
    summary.workers.push_back({rank, true, worker.exit_code(), worker.signal(), worker.stopping()});
    if (worker.rank() < reported.size()) reported[worker.rank()] = true;
    if (rank != cause.rank()) continue;
    summary.cause.core_dumped = worker.core_dumped();
    summary.cause.last_lines = worker.last_lines();
    summary.cause.log_path = worker.log_path();
  }
  for (size_t rank = 0; rank < reported.size(); ++rank) {
    if (!reported[rank]) summary.workers.push_back({static_cast<int>(rank), false, 0, 0, false});
  }
  return SummaryText(summary);
}

}  // namespace dslaunch
