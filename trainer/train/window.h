// What the ranks exchange after some of the steps, and how it is combined. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/memory_bytes.h"
#include "trainer/train/stop.h"

namespace dslaunch {

// A loss that is nan or infinite.
struct BadLoss {
  int64_t step = 0;
  int rank = 0;
  double loss = 0;
};

// One rank's report on the steps since the last exchange.
struct RankWindow {
  double loss = 0;             // sum over the steps
  double seconds = 0;          // that the steps took
  std::optional<BadLoss> bad;  // the first one of a step that was not skipped
  StopRequest stop = StopRequest::kNone;
  MemoryBytes memory;
  double flops = 0;  // that this rank counted, where it counts

  // As numbers that a collective can carry, always as many.
  static constexpr int64_t kNumbers = 13;
  std::vector<double> Numbers() const;
  static RankWindow FromNumbers(const double* numbers, int rank);
};

// The combined result of an exchange, bit by bit the same on all ranks.
struct AllWindows {
  double loss = 0;             // sum over the steps of the mean over the ranks
  double seconds = 0;          // rank 0's
  std::optional<BadLoss> bad;  // the earliest, of several the lowest rank's
  StopDecision stop;
  MemoryBytes memory;  // of each category the maximum over the ranks
  double flops = 0;    // sum over the ranks
};

// `ranks`, by rank, is not empty.
AllWindows Combine(const std::vector<RankWindow>& ranks);

// "the loss of rank 1 is nan at step 3; try a lower learning rate"
std::string BadLossMessage(const BadLoss& bad);

// Steps until the next exchange, so that there is one about every 100 ms: each costs a round trip,
// and a stop request waits for the next one. `last` is the previous number of steps, which at most
// doubles, because a single measurement may be wrong; `step_s` is the mean time of a step since.
int64_t StepsUntilExchange(int64_t last, double step_s);

}  // namespace dslaunch
