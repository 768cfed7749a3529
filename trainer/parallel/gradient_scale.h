// By what gradients are multiplied around their sum over the ranks. Pure.
#pragma once

#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

struct GradientScale {
  double before = 1;
  double after = 1;
};

// As DeepSpeed: the postscaled sum may be divided by a part of the ranks' number before it, so that
// a 16-bit sum stays in range; the prescaled one by all of it, whatever that part is.
inline GradientScale ScaleOf(const GradSyncOptions& options, int world_size) {
  if (options.sum) return {};
  if (options.prescale) return {.before = 1.0 / world_size};
  return {.before = 1 / options.predivide_factor, .after = options.predivide_factor / world_size};
}

}  // namespace dslaunch
