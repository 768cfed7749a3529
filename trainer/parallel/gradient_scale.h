// The factors by which gradients are multiplied before and after the sum over the ranks. Pure.
#pragma once

#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

struct GradientScale {
  double before = 1;
  double after = 1;
};

// Returns DeepSpeed's factors. Without prescale predivide_factor divides before the sum, so that a
// 16-bit sum stays in range, and the rest of the division follows the sum. With prescale all of it
// comes before the sum, whatever predivide_factor is.
inline GradientScale ScaleOf(const GradSyncOptions& options, int world_size) {
  if (options.sum) return {};
  if (options.prescale) return {.before = 1.0 / world_size};
  return {.before = 1 / options.predivide_factor, .after = options.predivide_factor / world_size};
}

}  // namespace dslaunch
