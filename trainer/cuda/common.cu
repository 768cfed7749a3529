// Defines code that the kernels in this folder share. NVRTC compiles the kernels at run time for
// the machine's GPU (cuda_kernels.cc), without CUDA's headers.

__device__ float NotANumber() { return __uint_as_float(0x7fc00000u); }
__device__ float MinusInfinity() { return __uint_as_float(0xff800000u); }

// Elements that one instruction loads or stores.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T at[kCount];
};

template <typename T, int kCount>
__device__ void Store(const Pack<T, kCount>& pack, T* to) {
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    uint4 words;
    memcpy(&words, &pack, sizeof(words));
    Store16(words, to);
  } else {
    *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
  }
}

// Returns, in every lane of the warp, the sum over all lanes.
__device__ float SumOfWarp(float mine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    mine += OfOtherLane(mine, distance);
  }
  return mine;
}
