// The factors of gradients before and after their sum over the ranks. Pure.
#pragma once

#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

struct GradientScale {
  double before = 1;
  double after = 1;
};

// Returns DeepSpeed's factors: without prescale a part of the division, predivide_factor, may come
// before the sum, so that a 16-bit sum stays in range; with prescale all of it does, whatever
// predivide_factor is.
inline GradientScale ScaleOf(const GradSyncOptions& options, int world_size) {
  if (options.sum) return {};
  if (options.prescale) return {.before = 1.0 / world_size};
  return {.before = 1 / options.predivide_factor, .after = options.predivide_factor / world_size};
}

}  // namespace dslaunch
