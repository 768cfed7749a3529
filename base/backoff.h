// The one rule for the pauses between attempts.
#pragma once

#include <algorithm>
#include <random>

#include "base/deadline.h"

namespace dslaunch {

// The pause after attempt number `attempt` (0: the first): `first`, doubled for each attempt but at
// most `longest`, and of that a part between half and all, which `random` in [0, 1) chooses. So
// those who were turned away together do not come back together. Pure.
inline milliseconds PauseAfter(int attempt, milliseconds first, milliseconds longest,
                               double random) {
  milliseconds pause = std::min(first, longest);
  for (int i = 0; i < attempt && pause < longest; ++i) pause = std::min(pause * 2, longest);
  const milliseconds half = pause / 2;
  return half + std::chrono::duration_cast<milliseconds>((pause - half) * random);
}

// A number in [0, 1). Thread-safe.
inline double RandomPart() {
  thread_local std::minstd_rand random(std::random_device{}());
  return std::uniform_real_distribution<double>(0, 1)(random);
}

}  // namespace dslaunch
