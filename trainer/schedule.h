// How long a run is, counted in steps, micro-batches and epochs. Arithmetic only.
#pragma once

#include <cstdint>

#include "trainer/config/recipe.h"

namespace dslaunch {

// Steps and epochs count from 1. Micro-batches run on from one epoch into the next, so a step that
// accumulates several may begin in one epoch and end in the following; it belongs to the one it
// ends in.
struct Schedule {
  int64_t batches_per_epoch = 0;   // micro-batches of one rank
  int64_t accumulation_steps = 1;  // micro-batches of one step
  int64_t total_steps = 0;
  int64_t share_every = 1;  // steps between two all-reduces of the loss
  int64_t print_every = 0;  // 0: never

  int64_t EpochOf(int64_t step) const {
    return (step * accumulation_steps + batches_per_epoch - 1) / batches_per_epoch;
  }
  bool EndsEpoch(int64_t step) const {
    return step == total_steps || EpochOf(step + 1) != EpochOf(step);
  }
  // Whether the ranks make their losses one number after this step. The same on every rank.
  bool SharesLossAfter(int64_t step) const {
    return step % share_every == 0 || EndsEpoch(step) ||
           (print_every > 0 && step % print_every == 0);
  }
};

// Throws kBadInput where the data set is smaller than one global batch.
Schedule MakeSchedule(const Recipe& recipe, int64_t num_samples, int64_t ranks);

}  // namespace dslaunch
