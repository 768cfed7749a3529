// Numbers that the ranks exchange after some of the steps, and their combination. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/memory_bytes.h"
#include "trainer/base/stop.h"

namespace dslaunch {

// Number of bad steps in a row that end training: steps with a non-finite loss, or without an
// update that a lower loss scale could make possible.
inline constexpr int64_t kMostBadSteps = 5;

// Where training went wrong: a loss that is nan or infinite, or steps in a row without an update.
struct Divergence {
  int64_t step = 0;  // the first bad step
  int rank = 0;
  double loss = 0;    // loss in that step; if it is finite, the gradients were not
  int64_t steps = 0;  // skipped steps in a row; 0: not skipped, so the weights are lost
};

// One rank's report on the steps since the last exchange.
struct RankWindow {
  double loss = 0;     // sum over the steps
  double seconds = 0;  // duration of the steps
  std::optional<Divergence> diverged;
  int64_t bad_steps = 0;  // bad steps in a row, up to the newest step (kMostBadSteps)
  StopRequest stop = StopRequest::kNone;
  MemoryBytes memory;
  double flops = 0;  // operations counted on this rank, or 0

  // Converts to and from numbers for a collective, always kNumbers of them.
  static constexpr int64_t kNumbers = 16;
  std::vector<double> Numbers() const;
  static RankWindow FromNumbers(const double* numbers, int rank);
};

// The combined result of an exchange, bit by bit the same on all ranks.
struct AllWindows {
  double loss = 0;     // sum over the steps of the mean over the ranks
  double seconds = 0;  // seconds of rank 0
  // The earliest divergence; if several ranks report it, the lowest rank with a non-finite loss.
  std::optional<Divergence> diverged;
  int64_t bad_steps = 0;  // largest number of any rank
  StopDecision stop;
  MemoryBytes memory;  // maximum over the ranks of each category
  double flops = 0;    // sum over the ranks
};

// `ranks`, by rank, is not empty.
AllWindows Combine(const std::vector<RankWindow>& ranks);

// "the loss of rank 1 is nan at step 3"
// "training has diverged: the loss of rank 1 is nan at step 3, and 5 steps in a row made no update"
std::string DivergenceMessage(const Divergence& diverged);

// Returns the number of steps until the next exchange, so that there is one about every 100 ms:
// each costs a round trip, and a stop request waits for the next one. `last` is the previous
// number. The result is at most twice `last`, because a single measurement may be wrong. `step_s`
// is the mean time of the steps since the last exchange.
int64_t StepsUntilExchange(int64_t last, double step_s);

}  // namespace dslaunch
