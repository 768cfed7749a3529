// Reports long waits of this rank for others to its agent, which shows them in dslaunch stacks and
// where a job stands still.
#pragma once

#include <chrono>
#include <optional>

#include "base/unique_fd.h"
#include "trainer/comm/collective_progress.h"

namespace dslaunch {

// Writes "wait" lines on the status pipe (proto/contract/status_line.h) that DSLAUNCH_STATUS_FD
// names. Does nothing without one. Never blocks; a line that the pipe does not take is lost.
class WaitReport {
 public:
  WaitReport();

  // This rank has waited for `exchange` for so long; nullopt: it waits no longer.
  void Report(const std::optional<Exchange>& exchange, std::chrono::milliseconds waited) const;

 private:
  UniqueFd fd_;
};

}  // namespace dslaunch
