// Reports long waits of this rank for others to its agent. `dslaunch stacks` and the report of a
// hang show them.
#pragma once

#include <chrono>
#include <optional>

#include "trainer/base/status_writer.h"
#include "trainer/comm/collective_progress.h"

namespace dslaunch {

// Writes "wait" lines on the status pipe (proto/contract/status_line.h).
class WaitReport {
 public:
  // Reports that this rank has waited that long for `exchange`; nullopt: it waits no longer.
  void Report(const std::optional<Exchange>& exchange, std::chrono::milliseconds waited) const;

 private:
  StatusWriter status_;
};

}  // namespace dslaunch
