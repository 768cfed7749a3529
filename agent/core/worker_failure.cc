#include "agent/core/worker_failure.h"

#include "base/exit_code.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr int kUncaughtException = 1;  // Python's exit code after an uncaught exception

}  // namespace

bool IsFailure(const pb::WorkerExited& exited) {
  return !exited.stopping() && (exited.signal() != 0 || exited.exit_code() != 0);
}

pb::Cause CauseOfFailure(const pb::WorkerEnded& ended, uint32_t node_index) {
  // A signal of the stop ended the worker, so that signal is not the cause if the worker had
  // reported an error of its own.
  const bool by_signal = ended.signal() != 0 && !ended.failed_before_stop();
  const int exit_code = ended.signal() != 0 ? kUncaughtException : ended.exit_code();
  pb::Cause cause = MakeCause(by_signal ? pb::Cause::WORKER_SIGNAL : pb::Cause::WORKER_EXIT,
                              node_index, ExitCode::kInternal, "");
  cause.set_attempt(ended.attempt());
  cause.set_rank(static_cast<int>(ended.rank()));
  cause.set_local_rank(static_cast<int>(ended.local_rank()));
  cause.set_signal(by_signal ? ended.signal() : 0);
  cause.set_exit_code(by_signal ? ExitCodeForSignal(ended.signal()) : exit_code);
  cause.set_while_stopping(ended.stopping());
  cause.set_core_dumped(ended.core_dumped());
  cause.set_out_of_memory(ended.out_of_memory());
  cause.set_victim(ended.victim());
  cause.set_peer_fault(ended.peer_fault());
  cause.set_evidence(ended.evidence());
  cause.set_log_path(ended.log_path());
  cause.set_restart(ended.restart());
  cause.set_restart_reason(ended.restart_reason());
  cause.set_restart_line(ended.restart_line());
  return cause;
}

}  // namespace dslaunch
