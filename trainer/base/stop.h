// Requests that a run ends early: after SIGINT or SIGTERM, at its time limit, or because a
// checkpoint cannot be saved.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"

namespace dslaunch {

enum class StopRequest { kNone, kSigterm, kSigint, kTimeLimit, kSaveFailed };

// Makes SIGINT and SIGTERM request a stop, after which the program soon ends by itself. Without
// this call, the signals end the process immediately.
void CatchStopSignals();

// Returns this rank's request: kSigint or kSigterm if the signal has arrived since
// CatchStopSignals, else kTimeLimit if `deadline` has passed, else kNone. `deadline` is the time
// limit of the run; nullopt if there is none. Never returns kSaveFailed.
StopRequest CurrentStopRequest(std::optional<Clock::time_point> deadline);

// The decision to stop, on which all ranks agree.
struct StopDecision {
  StopRequest request = StopRequest::kNone;
  int rank = 0;  // lowest rank that requests a stop

  explicit operator bool() const { return request != StopRequest::kNone; }
};

// Returns the reason for messages, such as "SIGTERM (rank 3)" or "run.time_limit_s". Must not be
// called for kSaveFailed, which has its own error.
std::string StopReason(const StopDecision& stop);

}  // namespace dslaunch
