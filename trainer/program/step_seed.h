// Where the random numbers of a forward pass (dropout) come from.
#pragma once

#include <cstdint>

namespace dslaunch {

// A seed of its own for each micro-batch of each step on each rank, so that a resumed run draws
// what the uninterrupted one would have drawn. Pure.
inline uint64_t MicroBatchSeed(uint64_t run_seed, int64_t step, int64_t micro_batch, int rank) {
  uint64_t hash = 0;
  for (const uint64_t part : {run_seed, static_cast<uint64_t>(step),
                              static_cast<uint64_t>(micro_batch), static_cast<uint64_t>(rank)}) {
    hash += part + 0x9e3779b97f4a7c15;  // splitmix64
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  }
  return hash;
}

}  // namespace dslaunch
