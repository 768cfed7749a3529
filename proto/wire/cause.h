// Makes and describes causes, which are the reasons why a job ended.
#pragma once

#include <string>
#include <utility>

#include "base/exit_code.h"
#include "base/text/signal_name.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Returns a cause that applies to a whole node, not to a rank.
inline pb::Cause MakeCause(pb::Cause::Kind kind, uint32_t node_index, ExitCode code,
                           std::string message) {
  pb::Cause cause;
  cause.set_kind(kind);
  cause.set_node_index(node_index);
  cause.set_rank(-1);
  cause.set_exit_code(ToInt(code));
  cause.set_message(std::move(message));
  return cause;
}

// Returns a cause for a signal that requests a whole node to stop.
inline pb::Cause MakeSignalCause(pb::Cause::Kind kind, uint32_t node_index, int signal_number,
                                 std::string message) {
  pb::Cause cause = MakeCause(kind, node_index, ExitCode::kInterrupted, std::move(message));
  cause.set_exit_code(ExitCodeForSignal(signal_number));
  cause.set_signal(signal_number);
  return cause;
}

// Returns whether the cause states that the ranks succeeded.
inline bool IsSuccess(const pb::Cause& cause) { return cause.kind() == pb::Cause::NONE; }

// Returns whether a signal or the job's own program requested the job to stop.
inline bool IsStopRequest(const pb::Cause& cause) {
  return cause.kind() == pb::Cause::INTERRUPTED ||
         (cause.kind() == pb::Cause::WORKER_EXIT &&
          cause.exit_code() == ToInt(ExitCode::kPreempted));
}

// Returns a line about the cause without a period, such as "rank 3 (node2) exited with code 7". The
// node is omitted if `node_name` is empty.
inline std::string CauseText(const pb::Cause& cause, const std::string& node_name = "") {
  if (IsSuccess(cause)) return "all ranks succeeded";
  const std::string who =
      "rank " + std::to_string(cause.rank()) + (node_name.empty() ? " " : " (" + node_name + ") ");
  if (cause.kind() == pb::Cause::WORKER_EXIT) {
    return who + "exited with code " + std::to_string(cause.exit_code());
  }
  if (cause.kind() == pb::Cause::WORKER_SIGNAL) {
    return who + "was killed by " + SignalName(cause.signal()) +
           (cause.out_of_memory() ? ", out of memory" : "");
  }
  return cause.message().substr(0, cause.message().find('\n'));
}

}  // namespace dslaunch
