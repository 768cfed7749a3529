// Defines the numbers that the ranks exchange after some of the steps, and combines them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/memory_bytes.h"
#include "trainer/base/stop.h"

namespace dslaunch {

// Limits the bad steps in a row, at which training ends. A bad step has a non-finite loss, or makes
// no update although a lower loss scale could make one possible.
inline constexpr int64_t kMostBadSteps = 5;

// The point at which training diverged: a loss that is NaN or infinite, or several steps in a row
// without an update.
struct Divergence {
  int64_t step = 0;  // number of the first bad step
  int rank = 0;
  double loss = 0;  // loss in the first bad step; if it is finite, the gradients were not finite
  // Number of skipped steps in a row; 0 if the bad step was applied to the weights.
  int64_t steps = 0;
};

// One rank's sums over the steps since the last exchange.
struct RankWindow {
  double loss = 0;     // sum of the steps' losses
  double seconds = 0;  // duration of all steps of the window
  std::optional<Divergence> diverged;
  int64_t bad_steps = 0;  // number of bad steps in a row, up to the newest step (kMostBadSteps)
  StopRequest stop = StopRequest::kNone;
  MemoryBytes memory;
  double flops = 0;  // floating-point operations counted on this rank; 0 if not counted

  static constexpr int64_t kNumbers = 16;  // size of Numbers()
  // Returns the window as numbers that a collective can exchange.
  std::vector<double> Numbers() const;
  // Returns the window of `rank` from which Numbers() made `numbers`.
  static RankWindow FromNumbers(const double* numbers, int rank);
};

// The combined result of an exchange, identical in every bit on all ranks.
struct AllWindows {
  double loss = 0;     // sum over the steps of the mean loss over the ranks
  double seconds = 0;  // duration of the steps on rank 0
  // The earliest divergence. If several ranks report it, `rank` is the lowest rank with a
  // non-finite loss.
  std::optional<Divergence> diverged;
  int64_t bad_steps = 0;  // maximum of the ranks' bad_steps
  StopDecision stop;
  MemoryBytes memory;  // maximum over the ranks of each category
  double flops = 0;    // sum of the ranks' floating-point operations
};

// Combines the windows of all ranks. Precondition: `ranks` has an entry for each rank, and is not
// empty.
AllWindows Combine(const std::vector<RankWindow>& ranks);

// Returns a sentence about the divergence:
//   "the loss of rank 1 is nan at step 3"
//   "training has diverged: the loss of rank 1 is nan at step 3, and 5 steps in a row made no
//   update"
std::string DivergenceMessage(const Divergence& diverged);

// Returns the number of steps until the next exchange, so that there is an exchange about every 100
// ms. Each exchange costs a round trip, and a stop request waits for the next exchange. `last` is
// the previous result. The result is at most twice `last`, because a single measurement may be
// wrong. `step_s` is the mean duration in seconds of the steps since the last exchange.
int64_t StepsUntilExchange(int64_t last, double step_s);

}  // namespace dslaunch
