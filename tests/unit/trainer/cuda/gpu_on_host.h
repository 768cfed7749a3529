// Runs the sources of GPU kernels on the CPU: the threads of a block are fibers, which take turns.
// This header replaces CUDA's built-in names and trainer/cuda/instructions.cu, so that a test can
// include the other sources of that folder within namespace dslaunch::gpu_on_host.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#define __device__
#define __shared__ static  // static, because only one block runs at a time
#define __launch_bounds__(threads)
#define DSLAUNCH_KERNEL [[maybe_unused]] static void

namespace dslaunch::gpu_on_host {

struct Index {
  unsigned x = 1, y = 1;
};

// Runs `thread` for each thread of each block, block after block. Throws std::runtime_error if the
// threads of a block wait for each other at different calls.
void Run(Index blocks, Index threads, const std::function<void()>& thread);

// Sizes of the grid, and indices of the running thread.
extern Index gridDim, blockIdx, threadIdx;

constexpr int kWarp = 32;

// Blocks until all threads of the block that have not ended have called this function.
void AwaitBlock();
// Passes `mine` to the other lanes and waits until all lanes of the warp have called this function.
// Returns the value that `lane`, 0 to kWarp - 1, has passed.
float ValueOfLane(float mine, unsigned lane);

inline void __syncthreads() { AwaitBlock(); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline long long min(long long a, long long b) { return std::min(a, b); }

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct Half {
  unsigned short bits;
};
struct Bfloat {
  unsigned short bits;
};

inline float ToFloat(float value) { return value; }
inline float ToFloat(Half value) { return c10::Half(value.bits, c10::Half::from_bits()); }
inline float ToFloat(Bfloat value) { return c10::BFloat16(value.bits, c10::BFloat16::from_bits()); }
inline void Put(float value, float& to) { to = value; }
inline void Put(float value, Half& to) { to.bits = c10::Half(value).x; }
inline void Put(float value, Bfloat& to) { to.bits = c10::BFloat16(value).x; }

inline float FastPowerOf2(float x) { return std::exp2(x); }
inline float FastReciprocal(float x) { return 1 / x; }
inline void Store16(const uint4& words, void* to) { std::memcpy(to, &words, sizeof(words)); }
inline float OfOtherLane(float mine, int distance) {
  return ValueOfLane(mine, threadIdx.x % kWarp ^ static_cast<unsigned>(distance));
}
inline float OfLaterLane(float mine, int distance) {
  return ValueOfLane(mine,
                     std::min(threadIdx.x % kWarp + static_cast<unsigned>(distance), kWarp - 1U));
}

}  // namespace dslaunch::gpu_on_host
