#include "agent/worker_end.h"

#include <string>
#include <utility>

#include "agent/log_tail.h"
#include "rendezvous/cause.h"

namespace dslaunch {

bool IsFailure(const pb::WorkerExited& exited) {
  return !exited.stopping() && (exited.signal() != 0 || exited.exit_code() != 0);
}

pb::WorkerEnded DescribeWorkerEnd(const pb::WorkerExited& exited, const EpochWorker& worker,
                                  uint64_t epoch) {
  pb::WorkerEnded ended;
  ended.set_epoch(epoch);
  ended.set_rank(worker.rank);
  ended.set_local_rank(worker.local_rank);
  ended.set_exit_code(exited.exit_code());
  ended.set_signal(exited.signal());
  ended.set_core_dumped(exited.core_dumped());
  ended.set_stopping(exited.stopping());
  if (!IsFailure(exited)) return ended;
  std::string log = worker.folder + "/stderr.log";
  std::string last_lines = LastLines(log);
  if (last_lines.empty()) {
    log = worker.folder + "/stdout.log";
    last_lines = LastLines(log);
  }
  ended.set_last_lines(std::move(last_lines));
  ended.set_log_path(std::move(log));
  return ended;
}

pb::Cause CauseOfFailure(const pb::WorkerEnded& ended, uint32_t node_index) {
  pb::Cause cause =
      MakeCause(ended.signal() != 0 ? pb::Cause::WORKER_SIGNAL : pb::Cause::WORKER_EXIT, node_index,
                ExitCode::kInternal, "");
  cause.set_epoch(ended.epoch());
  cause.set_rank(static_cast<int>(ended.rank()));
  cause.set_local_rank(static_cast<int>(ended.local_rank()));
  cause.set_signal(ended.signal());
  cause.set_exit_code(ended.signal() != 0 ? ExitCodeForSignal(ended.signal()) : ended.exit_code());
  cause.set_core_dumped(ended.core_dumped());
  cause.set_out_of_memory(ended.out_of_memory());
  cause.set_victim(ended.victim());
  cause.set_evidence(ended.evidence());
  return cause;
}

}  // namespace dslaunch
