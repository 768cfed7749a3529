#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace dslaunch {

// Combines several numbers into one seed. LibTorch's generator uses only the lower 32 bits, so
// seeds of different inputs also differ in these bits. Pure function.
inline uint64_t MixSeed(std::initializer_list<uint64_t> parts) {
  uint64_t hash = 0;
  for (const uint64_t part : parts) {
    hash += part + 0x9e3779b97f4a7c15;  // mixing function of splitmix64
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  }
  return hash;
}

// Returns the seed of the random numbers (dropout) in a micro-batch. The seed depends only on the
// arguments, so a resumed run draws the same numbers as an uninterrupted run. Steps count from 1,
// and micro-batches from 0 in each step. Pure function.
inline uint64_t MicroBatchSeed(uint64_t run_seed, int64_t step, int64_t micro_batch, int replica) {
  return MixSeed({run_seed, static_cast<uint64_t>(step), static_cast<uint64_t>(micro_batch),
                  static_cast<uint64_t>(replica)});
}

// Returns the seed of a layer. `layer` is its index in the whole model, so that the layer draws the
// same numbers wherever the model is divided into stages, and also when the layer is recomputed.
// The loss has the index kLossLayer. Pure function.
inline constexpr size_t kLossLayer = ~size_t{0};
inline uint64_t LayerSeed(uint64_t micro_batch_seed, size_t layer) {
  return MixSeed({micro_batch_seed, layer});
}

}  // namespace dslaunch
