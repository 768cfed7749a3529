// Ending a run early: on SIGTERM, at its time limit, or because it cannot be saved.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"

namespace dslaunch {

enum class StopRequest { kNone, kSigterm, kTimeLimit, kSaveFailed };

// From here on SIGTERM no longer ends this process but is a request: the program ends by itself
// soon.
void CatchSigterm();

// What this rank requests now. `deadline`: when its time is up. SIGTERM counts only after
// CatchSigterm.
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
