// Making the Cause that ends a job.
#pragma once

#include <string>
#include <utility>

#include "proto/contract/exit_code.h"
#include "proto/job.pb.h"

namespace dslaunch {

// A cause that concerns a node as a whole.
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

// For a log.
inline std::string CauseText(const pb::Cause& cause) {
  if (cause.kind() == pb::Cause::NONE) return "every rank ended well";
  if (!cause.message().empty()) return cause.message();
  return "rank " + std::to_string(cause.rank()) + " failed, exit code " +
         std::to_string(cause.exit_code());
}

}  // namespace dslaunch
