// Calculates pauses between retries by exponential backoff with jitter.
#pragma once

#include <algorithm>
#include <random>

#include "base/deadline.h"

namespace dslaunch {

// Returns the pause after retry number `attempt`, counted from 0. The pause is `first`, doubled for
// each retry up to `longest`, times a factor between 0.5 and 1 that `random` in [0, 1) determines.
// The jitter spreads out clients that were refused at the same moment. Pure.
inline milliseconds PauseAfter(int attempt, milliseconds first, milliseconds longest,
                               double random) {
  milliseconds pause = std::min(first, longest);
  for (int i = 0; i < attempt && pause < longest; ++i) pause = std::min(pause * 2, longest);
  const milliseconds half = pause / 2;
  return half + std::chrono::duration_cast<milliseconds>((pause - half) * random);
}

// Returns a random number in [0, 1). Thread-safe.
inline double RandomPart() {
  thread_local std::minstd_rand random(std::random_device{}());
  return std::uniform_real_distribution<double>(0, 1)(random);
}

}  // namespace dslaunch
