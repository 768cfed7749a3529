// Ends a run early: on SIGINT or SIGTERM, at its time limit, or because it cannot be saved.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"

namespace dslaunch {

enum class StopRequest { kNone, kSigterm, kSigint, kTimeLimit, kSaveFailed };

// Makes SIGINT and SIGTERM requests to stop, after which the program ends soon by itself, instead
// of ending the process.
void CatchStopSignals();

// Returns this rank's current request. `deadline` is its time limit. Signals count only after
// CatchStopSignals.
StopRequest CurrentStopRequest(std::optional<Clock::time_point> deadline);

// The decision on which all ranks agree.
struct StopDecision {
  StopRequest request = StopRequest::kNone;
  int rank = 0;  // the lowest rank that requests it

  explicit operator bool() const { return request != StopRequest::kNone; }
};

// Returns "SIGTERM (rank 3)" or "run.time_limit_s". A failed save has its own error.
std::string StopReason(const StopDecision& stop);

}  // namespace dslaunch
