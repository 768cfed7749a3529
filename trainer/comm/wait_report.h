// Reports long waits of this rank for other ranks to its agent. `dslaunch stacks` and the report of
// a hang show these waits.
#pragma once

#include <chrono>
#include <optional>

#include "trainer/base/status_writer.h"
#include "trainer/comm/collective_progress.h"

namespace dslaunch {

// Writes "wait" lines on the status pipe (proto/contract/status_line.h).
class WaitReport {
 public:
  // Reports that this rank has waited for `exchange` for the time `waited`; nullopt if it no longer
  // waits.
  void Report(const std::optional<Exchange>& exchange, std::chrono::milliseconds waited) const;

 private:
  StatusWriter status_;
};

}  // namespace dslaunch
