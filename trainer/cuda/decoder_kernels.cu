// Defines the kernels of rotary embeddings and gated feed-forward layers. The end of the file
// defines each kernel for each type of element: NAME_float, NAME_half and NAME_bfloat.

constexpr int kElementThreads = 256;  // per block; equals the value in kernel_calls.cc

__device__ long long ThisPack() {
  return blockIdx.x * static_cast<long long>(kElementThreads) + threadIdx.x;
}

// Rotates the halves (a, b) of each row of x [rows, 2 * half] to (a c - b s, b c + a s), where c is
// the row's cosine and s is its sine times `direction` (Su et al. 2021, section 3.4.2). Groups of
// `heads` consecutive rows use the same row of `cosines` and `sines` [positions, half], whose rows
// repeat.
template <typename T, int kCount>
__device__ void Rotate(const T* x, const T* cosines, const T* sines, long long rows, long long heads,
                       long long positions, long long half, float direction, T* y) {
  using Some = Pack<T, kCount>;
  const long long packs = half / kCount, i = ThisPack();
  if (i >= rows * packs) return;
  const long long row = i / packs, column = i % packs * kCount;
  const long long angle = row / heads % positions * half + column;
  const long long at = row * 2 * half + column;
  Some a = *reinterpret_cast<const Some*>(x + at), b = *reinterpret_cast<const Some*>(x + at + half);
  const Some c = *reinterpret_cast<const Some*>(cosines + angle);
  const Some s = *reinterpret_cast<const Some*>(sines + angle);
  for (int j = 0; j < kCount; ++j) {
    const float first = ToFloat(a.at[j]), second = ToFloat(b.at[j]);
    const float cosine = ToFloat(c.at[j]), sine = ToFloat(s.at[j]) * direction;
    Put(first * cosine - second * sine, a.at[j]);
    Put(second * cosine + first * sine, b.at[j]);
  }
  Store(a, y + at);
  Store(b, y + at + half);
}

constexpr float kLog2OfE = 1.4426950408889634f;

// Returns the logistic function of x.
__device__ float Logistic(float x) { return FastReciprocal(1 + FastPowerOf2(-kLog2OfE * x)); }

// Computes y = gate * logistic(gate) * up (Shazeer 2020, section 2: SwiGLU).
template <typename T, int kCount>
__device__ void SwiGlu(const T* gate, const T* up, long long count, T* y) {
  using Some = Pack<T, kCount>;
  const long long at = ThisPack() * kCount;
  if (at >= count) return;
  Some g = *reinterpret_cast<const Some*>(gate + at);
  const Some u = *reinterpret_cast<const Some*>(up + at);
  for (int j = 0; j < kCount; ++j) {
    const float x = ToFloat(g.at[j]);
    Put(x * Logistic(x) * ToFloat(u.at[j]), g.at[j]);
  }
  Store(g, y + at);
}

// Computes the gradients by `gate` and `up`. `gradient` is the gradient by y.
template <typename T, int kCount>
__device__ void SwiGluGradients(const T* gradient, const T* gate, const T* up, long long count,
                                T* gate_gradient, T* up_gradient) {
  using Some = Pack<T, kCount>;
  const long long at = ThisPack() * kCount;
  if (at >= count) return;
  const Some dy = *reinterpret_cast<const Some*>(gradient + at);
  Some g = *reinterpret_cast<const Some*>(gate + at), u = *reinterpret_cast<const Some*>(up + at);
  for (int j = 0; j < kCount; ++j) {
    const float x = ToFloat(g.at[j]), share = Logistic(x), own = ToFloat(dy.at[j]);
    Put(own * ToFloat(u.at[j]) * share * (1 + x * (1 - share)), g.at[j]);
    Put(own * x * share, u.at[j]);
  }
  Store(g, gate_gradient + at);
  Store(u, up_gradient + at);
}

// `wide` means that rows, halves and tables are aligned for packs of 16 bytes and consist of whole
// packs.
#define DSLAUNCH_KERNELS(T, name)                                                                  \
  DSLAUNCH_KERNEL __launch_bounds__(kElementThreads)                                               \
      rotate_##name(const T* x, const T* cosines, const T* sines, long long rows, long long heads, \
                    long long positions, long long half, float direction, T* y, bool wide) {       \
    if (wide) {                                                                                    \
      Rotate<T, 16 / sizeof(T)>(x, cosines, sines, rows, heads, positions, half, direction, y);    \
    } else {                                                                                       \
      Rotate<T, 1>(x, cosines, sines, rows, heads, positions, half, direction, y);                 \
    }                                                                                              \
  }                                                                                                \
  DSLAUNCH_KERNEL __launch_bounds__(kElementThreads)                                               \
      swiglu_##name(const T* gate, const T* up, long long count, T* y, bool wide) {                \
    if (wide) {                                                                                    \
      SwiGlu<T, 16 / sizeof(T)>(gate, up, count, y);                                               \
    } else {                                                                                       \
      SwiGlu<T, 1>(gate, up, count, y);                                                            \
    }                                                                                              \
  }                                                                                                \
  DSLAUNCH_KERNEL __launch_bounds__(kElementThreads)                                               \
      swiglu_gradients_##name(const T* gradient, const T* gate, const T* up, long long count,      \
                              T* gate_gradient, T* up_gradient, bool wide) {                       \
    if (wide) {                                                                                    \
      SwiGluGradients<T, 16 / sizeof(T)>(gradient, gate, up, count, gate_gradient, up_gradient);   \
    } else {                                                                                       \
      SwiGluGradients<T, 1>(gradient, gate, up, count, gate_gradient, up_gradient);                \
    }                                                                                              \
  }

DSLAUNCH_KERNELS(float, float)
DSLAUNCH_KERNELS(Half, half)
DSLAUNCH_KERNELS(Bfloat, bfloat)
