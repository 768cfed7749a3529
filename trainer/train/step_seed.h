// Where the random numbers of a forward pass (dropout) come from.
#pragma once

#include "trainer/base/seed.h"

namespace dslaunch {

// A seed of its own for each micro-batch of each step on each rank, so that a resumed run draws
// what the uninterrupted one would have drawn. Pure.
inline uint64_t MicroBatchSeed(uint64_t run_seed, int64_t step, int64_t micro_batch, int rank) {
  return MixSeed({run_seed, static_cast<uint64_t>(step), static_cast<uint64_t>(micro_batch),
                  static_cast<uint64_t>(rank)});
}

}  // namespace dslaunch
