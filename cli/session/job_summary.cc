#include "cli/session/job_summary.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace dslaunch {
namespace {

void AddCause(const pb::Cause& cause, const LaunchPlan& plan, const JobState& job_state,
              JobSummary& summary) {
  EndCause& first = summary.cause;
  first = EndCauseOf(
      cause, cause.node_index() < plan.nodes.size() ? plan.nodes[cause.node_index()].name : "");
  for (const pb::WorkerEnded& worker : job_state.workers_ended()) {
    const bool same_attempt = worker.attempt() == cause.attempt();
    if (!same_attempt || static_cast<int>(worker.rank()) != cause.rank()) continue;
    first.core_dumped = worker.core_dumped();
    first.out_of_memory = first.out_of_memory || worker.out_of_memory();
    first.last_lines = worker.last_lines();
    first.log_path = worker.log_path();
  }
}

// Adds the workers of the last attempt to the summary.
void AddWorkers(const JobEnd& end, const JobState& job_state, JobSummary& summary) {
  const std::set<uint32_t> victims(end.victims.begin(), end.victims.end());
  std::vector<bool> reported(static_cast<size_t>(summary.world_size));
  for (const pb::WorkerEnded& worker : job_state.workers_ended()) {
    if (worker.attempt() != job_state.attempt() && job_state.attempt() != 0) continue;
    RankSummary& one = summary.workers.emplace_back();
    one.rank = static_cast<int>(worker.rank());
    one.exit_code = worker.exit_code();
    one.signal = worker.signal();
    one.stopping = worker.stopping();
    one.evidence = worker.evidence();
    one.victim = victims.contains(worker.rank()) && one.rank != summary.cause.rank;
    if (worker.rank() < reported.size()) reported[worker.rank()] = true;
  }
  for (size_t rank = 0; rank < reported.size(); ++rank) {
    if (reported[rank]) continue;
    summary.workers.push_back({.rank = static_cast<int>(rank), .reported = false});
  }
}

void AddNodes(const JobInfo& info, const JobEnd& end, const std::vector<std::string>& job_dirs,
              JobSummary& summary) {
  for (uint32_t i = 0; i < info.nodes.size(); ++i) {
    const NodeEnd& node = info.nodes[i];
    const bool is_member = std::ranges::binary_search(end.members, i);
    summary.nodes.push_back({node.name,
                             node.absent ? "absent"
                             : node.done ? "done"
                                         : "lost",
                             is_member, job_dirs[i]});
    if (is_member && summary.logs.empty() && !job_dirs[i].empty())
      summary.logs = PathOnNode(summary, node.name, job_dirs[i]);
    if (!node.done) continue;
    for (const pb::LeftProcess& left : node.done->left())
      summary.left.push_back(
          {node.name, left.pid(), left.command(), left.state(), left.waits_in()});
  }
}

}  // namespace

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
    case pb::Cause::NODE_LEFT:
      return EndCause::Kind::kNodeLost;
    case pb::Cause::HANG:
      return EndCause::Kind::kHang;
    default:
      return EndCause::Kind::kInternal;
  }
}

EndCause EndCauseOf(const pb::Cause& cause, const std::string& node) {
  EndCause end;
  end.kind = ToKind(cause.kind());
  end.node = node;
  end.rank = cause.rank();
  end.local_rank = cause.local_rank();
  end.exit_code = cause.exit_code();
  end.signal = cause.signal();
  end.message = cause.message();
  end.core_dumped = cause.core_dumped();
  end.out_of_memory = cause.out_of_memory();
  end.victim = cause.victim();
  end.timed_out = cause.victim() && cause.peer_fault() == pb::Cause::LATE;
  end.evidence = cause.evidence();
  end.restart = cause.restart() == pb::Cause::RESTART_CAN_HELP      ? EndCause::Restart::kCanHelp
                : cause.restart() == pb::Cause::RESTART_CANNOT_HELP ? EndCause::Restart::kCannotHelp
                                                                    : EndCause::Restart::kUnknown;
  end.restart_reason = cause.restart_reason();
  end.restart_line = cause.restart_line();
  return end;
}

void NewestEvaluation::OnStatus(const pb::WorkerStatus& status) {
  if (rank_ < status.rank()) return;
  std::optional<StatusLine> line = StatusLine::Parse(status.line());
  if (!line || line->event != StatusLine::Event::kEval) return;
  rank_ = status.rank();
  line->results.emplace(line->results.begin(), "step", static_cast<double>(line->step));
  result_ = std::move(line->results);
}

std::string StdinHint(const EndCause& cause, bool rank_0_reads) {
  if (cause.kind != EndCause::Kind::kWorkerExit || (cause.rank == 0 && rank_0_reads)) return "";
  const std::vector<std::string_view> lines = LastLines(cause.last_lines);
  if (lines.empty()) return "";
  const bool is_breakpoint = lines.back().starts_with("bdb.BdbQuit");
  if (!is_breakpoint && !lines.back().starts_with("EOFError: EOF when reading a line")) return "";
  const std::string call = is_breakpoint ? "breakpoint()" : "input()";
  const std::string on_rank_0 = "call " + call + " on rank 0 only";
  return "its stdin is empty" +
         (rank_0_reads ? ": rank 0 alone reads this command's stdin; " + on_rank_0
                       : "; give --stdin 0 for rank 0 to read this command's, and " + on_rank_0);
}

JobSummary SummarizeJob(const std::string& job_id, const LaunchPlan& plan,
                        const JobState& job_state, const JobEnd& end,
                        const std::vector<std::string>& job_dirs, Clock::duration duration) {
  JobSummary summary;
  summary.job_id = job_id;
  summary.is_local = plan.launcher == Launcher::kLocal;
  summary.num_nodes = static_cast<int>(end.members.size());
  summary.world_size = job_state.world_size();
  summary.duration_s = std::chrono::duration<double>(duration).count();
  summary.exit_code = end.exit_code;
  summary.remarks = end.remarks;
  summary.saved_on_request = end.saved_on_request;
  summary.attempts = job_state.attempt();
  summary.restarts = job_state.restarts();
  AddCause(end.cause, plan, job_state, summary);
  AddWorkers(end, job_state, summary);
  AddNodes(job_state.Info(), end, job_dirs, summary);
  return summary;
}

}  // namespace dslaunch
