// Computes the factors of gradients before and after the sum over the ranks. Pure functions.
#pragma once

#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

struct GradientScale {
  double before = 1;
  double after = 1;
};

// Returns the factors that DeepSpeed uses. Without prescale, gradients are divided by
// predivide_factor before the sum, so that a 16-bit sum does not overflow, and by world_size /
// predivide_factor after the sum. With prescale, they are divided by world_size before the sum, and
// predivide_factor is ignored.
inline GradientScale ScaleOf(const GradSyncOptions& options, int world_size) {
  if (options.sum) return {};
  if (options.prescale) return {.before = 1.0 / world_size};
  return {.before = 1 / options.predivide_factor, .after = options.predivide_factor / world_size};
}

}  // namespace dslaunch
