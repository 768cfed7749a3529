#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace dslaunch {

// One seed of several numbers, that differs from those of others even in its lower half, which is
// all that LibTorch's generator uses. Pure.
inline uint64_t MixSeed(std::initializer_list<uint64_t> parts) {
  uint64_t hash = 0;
  for (const uint64_t part : parts) {
    hash += part + 0x9e3779b97f4a7c15;  // splitmix64
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  }
  return hash;
}

// The seed of the random numbers (dropout) of a micro-batch, counted from 0 in its step: so a
// resumed run draws what the uninterrupted one would have drawn. Steps count from 1. Pure.
inline uint64_t MicroBatchSeed(uint64_t run_seed, int64_t step, int64_t micro_batch, int replica) {
  return MixSeed({run_seed, static_cast<uint64_t>(step), static_cast<uint64_t>(micro_batch),
                  static_cast<uint64_t>(replica)});
}

// That of a layer of the model in it, counted from 0 in the whole: so it draws the same wherever
// the model is cut, and when the layer is computed again. The loss is a layer too. Pure.
inline constexpr size_t kLossLayer = ~size_t{0};
inline uint64_t LayerSeed(uint64_t micro_batch_seed, size_t layer) {
  return MixSeed({micro_batch_seed, layer});
}

}  // namespace dslaunch
