// Reports long waits of this rank for others to its agent, which shows them in dslaunch stacks and
// where a job stands still.
#pragma once

#include <chrono>
#include <optional>

#include "trainer/base/status_writer.h"
#include "trainer/comm/collective_progress.h"

namespace dslaunch {

// Writes "wait" lines on the status pipe (proto/contract/status_line.h).
class WaitReport {
 public:
  // This rank has waited for `exchange` for so long; nullopt: it waits no longer.
  void Report(const std::optional<Exchange>& exchange, std::chrono::milliseconds waited) const;

 private:
  StatusWriter status_;
};

}  // namespace dslaunch
