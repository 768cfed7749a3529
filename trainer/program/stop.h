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

// "SIGTERM (rank 3)"; "run.time_limit_s". A save that failed says itself why.
std::string StopReason(StopWish wish, int rank);

}  // namespace dslaunch
