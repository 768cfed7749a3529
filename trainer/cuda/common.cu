// Code shared by the kernels of this folder. NVRTC compiles them on the machine that runs them, for
// its GPU (cuda_kernels.cc). CUDA's headers are not available there, so 16-bit floats are converted
// here.

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

// Rounds to the nearest value, ties to even.
__device__ void Put(float value, float& to) { to = value; }
__device__ void Put(float value, Half& to) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}
__device__ void Put(float value, Bfloat& to) {
#if __CUDA_ARCH__ >= 800
  // Converts two floats at once, because the instruction for one is slow.
  unsigned two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(0.0f), "f"(value));
  to.bits = static_cast<unsigned short>(two);
#else
  const unsigned bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  to.bits = is_nan ? 0x7fc0 : static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

__device__ float NotANumber() { return __uint_as_float(0x7fc00000u); }
__device__ float MinusInfinity() { return __uint_as_float(0xff800000u); }

// Elements that one instruction loads.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T at[kCount];
};

// Stores with one instruction; the compiler would store parts of 4 bytes.
template <typename T, int kCount>
__device__ void Store(const Pack<T, kCount>& pack, T* to) {
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    uint4 words;
    memcpy(&words, &pack, sizeof(words));
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
  } else {
    *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
  }
}

// Returns the sum over all lanes to all lanes.
__device__ float SumOfWarp(float mine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    mine += __shfl_xor_sync(kWholeWarp, mine, distance);
  }
  return mine;
}
