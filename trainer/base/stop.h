// Ending a run early: on SIGINT or SIGTERM, at its time limit, or because it cannot be saved.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"

namespace dslaunch {

enum class StopRequest { kNone, kSigterm, kSigint, kTimeLimit, kSaveFailed };

// From here on SIGINT and SIGTERM no longer end this process but are requests: the program ends by
// itself soon.
void CatchStopSignals();

// What this rank requests now. `deadline`: when its time is up. Signals count only
// after CatchStopSignals.
StopRequest CurrentStopRequest(std::optional<Clock::time_point> deadline);

// What all ranks have agreed on.
struct StopDecision {
  StopRequest request = StopRequest::kNone;
  int rank = 0;  // the lowest that requests it

  explicit operator bool() const { return request != StopRequest::kNone; }
};

// "SIGTERM (rank 3)"; "run.time_limit_s". A failed save has an error of its own.
std::string StopReason(const StopDecision& stop);

}  // namespace dslaunch
