#pragma once

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

}  // namespace dslaunch
