// Defines functions for instructions of NVIDIA GPUs that C++ cannot express. A test replaces this
// file to run the kernels on a CPU (tests/unit/trainer/cuda/gpu_on_host.h).

#define DSLAUNCH_KERNEL extern "C" __global__ void

constexpr int kWarp = 32;
constexpr unsigned kWholeWarp = 0xffffffffu;

struct Half {
  unsigned short bits;
};
struct Bfloat {
  unsigned short bits;
};

__device__ float ToFloat(float value) { return value; }
__device__ float ToFloat(Half value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}
__device__ float ToFloat(Bfloat value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

// Writes `value` to `to`, rounded to the nearest value with ties to even.
__device__ void Put(float value, float& to) { to = value; }
__device__ void Put(float value, Half& to) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}
__device__ void Put(float value, Bfloat& to) {
#if __CUDA_ARCH__ >= 800
  // Converts two floats at once, because the instruction for one float is slower.
  unsigned two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(0.0f), "f"(value));
  to.bits = static_cast<unsigned short>(two);
#else
  const unsigned bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  to.bits = is_nan ? 0x7fc0 : static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

// Return 2^x and 1 / x, with errors of about 2^-22.
__device__ float FastPowerOf2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ float FastReciprocal(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

// Stores 16 bytes with one instruction. Without it, the compiler would store parts of 4 bytes.
__device__ void Store16(const uint4& words, void* to) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
}

// Return the value of another lane. The number of the lane differs in the bit `distance`, or is
// larger by `distance`.
__device__ float OfOtherLane(float mine, int distance) {
  return __shfl_xor_sync(kWholeWarp, mine, distance);
}
__device__ float OfLaterLane(float mine, int distance) {
  return __shfl_down_sync(kWholeWarp, mine, distance);
}
