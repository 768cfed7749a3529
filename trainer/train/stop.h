// Ending a run early, because somebody asks for it, its time is up or it cannot be saved.
#pragma once

#include <optional>
#include <string>

#include "base/deadline.h"

namespace dslaunch {

enum class StopWish { kNone, kSigterm, kTimeLimit, kSaveFailed };

// From here on SIGTERM no longer ends this process but is a wish: the program ends by itself soon.
void CatchSigterm();

// What this rank wishes now. `deadline`: when its time is up. SIGTERM counts only after
// CatchSigterm.
StopWish CurrentStopWish(std::optional<Clock::time_point> deadline);

// What all ranks have agreed on.
struct StopDecision {
  StopWish wish = StopWish::kNone;
  int rank = 0;  // the lowest that wishes it

  explicit operator bool() const { return wish != StopWish::kNone; }
};

// "SIGTERM (rank 3)"; "run.time_limit_s". A save that failed says itself why.
std::string StopReason(const StopDecision& stop);

}  // namespace dslaunch
