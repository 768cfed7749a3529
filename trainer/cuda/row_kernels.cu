// Defines the kernels of cross entropy, GELU and sums over rows. The end of the file defines each
// kernel for each type of element: NAME_float, NAME_half and NAME_bfloat.

// Equal to the sizes in kernel_calls.cc.
constexpr int kRowThreads = 512;  // threads per block that processes one row
constexpr int kColumnThreads = 32;  // adjacent threads of a block that sums columns
constexpr int kColumnRows = 8;  // warps of such a block, for successive rows
constexpr int kFinishRows = 32;
constexpr int kAtOnce = 4;  // loads before the first use, to hide memory latency

constexpr long long kIgnored = -100;  // target that is ignored

// The maximum of some values and the sum of exp(value - maximum), as in Milakov and Gimelshein
// 2018, "Online normalizer calculation for softmax", algorithm 3.
struct Normalizer {
  float greatest = MinusInfinity();
  float sum = 0;

  __device__ void Add(Normalizer other) {
    if (other.greatest == MinusInfinity() && other.sum == 0) return;
    const float both = fmaxf(greatest, other.greatest);
    const float ours = sum == 0 ? 0 : sum * __expf(greatest - both);
    sum = ours + other.sum * __expf(other.greatest - both);
    greatest = both;
  }
};

template <typename T, int kCount>
__device__ Normalizer NormalizerOf(const Pack<T, kCount>& pack) {
  Normalizer found;
  for (int i = 0; i < kCount; ++i) found.greatest = fmaxf(found.greatest, ToFloat(pack.at[i]));
  if (found.greatest == MinusInfinity()) {  // some elements may be NaN
    for (int i = 0; i < kCount; ++i) found.sum += ToFloat(pack.at[i]) == MinusInfinity() ? 0 : NotANumber();
    return found;
  }
  for (int i = 0; i < kCount; ++i) found.sum += __expf(ToFloat(pack.at[i]) - found.greatest);
  return found;
}

// Combines the values of all threads of a block. Only the first thread gets a valid result.
__device__ Normalizer OfBlock(Normalizer mine) {
  __shared__ Normalizer of_warps[kRowThreads / kWarp];
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    Normalizer other;
    other.greatest = OfLaterLane(mine.greatest, distance);
    other.sum = OfLaterLane(mine.sum, distance);
    mine.Add(other);
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Normalizer all;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRowThreads / kWarp; ++i) all.Add(of_warps[i]);
  }
  return all;
}

// Calls visit(index, pack) for each pack of a row that this thread processes.
template <typename T, int kCount, typename Visit>
__device__ void ForEachPack(const T* row, long long columns, const Visit& visit) {
  const auto* const packs = reinterpret_cast<const Pack<T, kCount>*>(row);
  const long long count = columns / kCount;
  long long i = threadIdx.x;
  for (; i + (kAtOnce - 1) * kRowThreads < count; i += kAtOnce * kRowThreads) {
    Pack<T, kCount> some[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) some[j] = packs[i + j * kRowThreads];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) visit(i + j * kRowThreads, some[j]);
  }
  for (; i < count; i += kRowThreads) visit(i, packs[i]);
}

// Computes cross entropies; each block processes one row of `logits` [rows, columns]. Writes
// log(sum of exp(logits)) and the loss of each row. The loss is 0 without a target, and NaN if the
// target is out of range.
template <typename T, int kCount>
__device__ void CrossEntropy(const T* logits, const long long* targets, long long columns,
                             float* log_sums, float* losses) {
  const long long row = blockIdx.x;
  const T* const begin = logits + row * columns;
  Normalizer mine;
  ForEachPack<T, kCount>(begin, columns, [&](long long, const Pack<T, kCount>& pack) {
    mine.Add(NormalizerOf(pack));
  });
  const Normalizer all = OfBlock(mine);
  if (threadIdx.x != 0) return;
  const float log_sum = all.greatest + logf(all.sum);
  const long long target = targets[row];
  log_sums[row] = log_sum;
  losses[row] = target == kIgnored ? 0
                : target < 0 || target >= columns ? NotANumber()
                                                  : log_sum - ToFloat(begin[target]);
}

// Computes the gradient of losses * scales [rows] by the logits.
template <typename T, int kCount>
__device__ void CrossEntropyGradient(const T* logits, const long long* targets, long long columns,
                                     const float* log_sums, const float* scales, T* gradients) {
  const long long row = blockIdx.x;
  const long long target = targets[row];
  const float log_sum = log_sums[row], scale = target == kIgnored ? 0 : scales[row];
  const bool is_wrong = target != kIgnored && (target < 0 || target >= columns);
  const float factor = is_wrong ? NotANumber() : scale;
  ForEachPack<T, kCount>(logits + row * columns, columns, [&](long long i, const Pack<T, kCount>& pack) {
    Pack<T, kCount> gradient;
    for (int j = 0; j < kCount; ++j) {
      const float share = __expf(ToFloat(pack.at[j]) - log_sum);
      const float less = i * kCount + j == target ? 1 : 0;
      Put(target == kIgnored ? 0 : (share - less) * factor, gradient.at[j]);
    }
    Store(gradient, gradients + row * columns + i * kCount);
  });
}

// GELU in the approximation by tanh (Hendrycks and Gimpel 2016, section 2) is x s(2u), where s is
// the logistic function and u = sqrt(2 / pi) (x + 0.044715 x^3), because 1 + tanh(u) = 2 s(2u).
constexpr float kLinear = 1.5957691216057308f, kCubic = 0.07135481627159992f;  // coefficients of 2u
constexpr float kLog2OfE = 1.4426950408889634f;

// Returns s(2u) for x.
__device__ float ShareOfGelu(float x) {
  const float exponent = -kLog2OfE * kLinear - kLog2OfE * kCubic * x * x;
  return FastReciprocal(1 + FastPowerOf2(x * exponent));
}

__device__ float Gelu(float x) { return x * ShareOfGelu(x); }

__device__ float GeluSlope(float x) {
  const float share = ShareOfGelu(x);
  return share + x * share * (1 - share) * (kLinear + 3 * kCubic * x * x);
}

template <typename T, int kCount>
__device__ void GeluOfAll(const T* x, long long count, T* y) {
  const auto* const from = reinterpret_cast<const Pack<T, kCount>*>(x);
  auto* const into = reinterpret_cast<Pack<T, kCount>*>(y);
  const long long packs = count / kCount;
  const long long first = blockIdx.x * static_cast<long long>(kRowThreads) * kAtOnce + threadIdx.x;
  Pack<T, kCount> some[kAtOnce];
#pragma unroll
  for (int j = 0; j < kAtOnce; ++j) {
    if (first + j * kRowThreads < packs) some[j] = from[first + j * kRowThreads];
  }
#pragma unroll
  for (int j = 0; j < kAtOnce; ++j) {
    if (first + j * kRowThreads >= packs) continue;
    for (int i = 0; i < kCount; ++i) Put(Gelu(ToFloat(some[j].at[i])), some[j].at[i]);
    into[first + j * kRowThreads] = some[j];
  }
}

// A source of rows whose columns SumColumns sums. Each source loads the inputs of its elements for
// kAtOnce rows before it computes the first element. A source must use few enough registers that
// kBlocksPerProcessor blocks (kernel_calls.cc) run at the same time.

template <typename T, int kCount>
struct Rows {
  static constexpr int kAtOnce = 4;
  using Loaded = Pack<T, kCount>;
  const T* values;
  long long columns;

  __device__ Loaded Load(long long row, long long column) const {
    return *reinterpret_cast<const Loaded*>(values + row * columns + column);
  }
  __device__ Loaded Make(const Loaded& loaded, long long, long long) const { return loaded; }
};

// A source of the gradient by the input of GELU, which Make also writes to `into`.
template <typename T, int kCount>
struct GeluGradients {
  static constexpr int kAtOnce = 2;
  struct Loaded {
    Pack<T, kCount> gradient, x;
  };
  const T *gradient, *x;
  long long columns;
  T* into;

  __device__ Loaded Load(long long row, long long column) const {
    const long long at = row * columns + column;
    return {*reinterpret_cast<const Pack<T, kCount>*>(gradient + at),
            *reinterpret_cast<const Pack<T, kCount>*>(x + at)};
  }
  __device__ Pack<T, kCount> Make(Loaded loaded, long long row, long long column) const {
    for (int i = 0; i < kCount; ++i) {
      Put(ToFloat(loaded.gradient.at[i]) * GeluSlope(ToFloat(loaded.x.at[i])), loaded.x.at[i]);
    }
    Store(loaded.x, into + row * columns + column);
    return loaded.x;
  }
};

// A source of three matrices [rows, width] side by side, which Make also writes to `into`.
template <typename T, int kCount>
struct Thirds {
  static constexpr int kAtOnce = 4;
  using Loaded = Pack<T, kCount>;
  const T *first, *second, *third;
  long long width;
  T* into;

  __device__ Loaded Load(long long row, long long column) const {
    const T* const from = column < width       ? first + column
                          : column < 2 * width ? second + column - width
                                               : third + column - 2 * width;
    return *reinterpret_cast<const Loaded*>(from + row * width);
  }
  __device__ Loaded Make(const Loaded& loaded, long long row, long long column) const {
    Store(loaded, into + row * 3 * width + column);
    return loaded;
  }
};

// Sums the columns of `source` [rows, columns]. Each block writes the sums over its part of the
// rows to `sums` [gridDim.y, columns].
template <typename T, int kCount, typename Source>
__device__ void SumColumns(const Source& source, long long rows, long long columns, float* sums) {
  const long long column = (blockIdx.x * static_cast<long long>(kColumnThreads) + threadIdx.x) * kCount;
  constexpr int kAtOnce = Source::kAtOnce, kStep = kAtOnce * kColumnRows;
  const long long steps = (rows + kStep - 1) / kStep, share = (steps + gridDim.y - 1) / gridDim.y * kStep;
  const long long begin = blockIdx.y * share, end = min(begin + share, rows);
  float sum[kCount] = {};
  const auto add = [&](const typename Source::Loaded& loaded, long long row) {
    const Pack<T, kCount> made = source.Make(loaded, row, column);
    for (int i = 0; i < kCount; ++i) sum[i] += ToFloat(made.at[i]);
  };
  if (column < columns) {
    long long row = begin + threadIdx.y;
    for (; row + (kAtOnce - 1) * kColumnRows < end; row += kAtOnce * kColumnRows) {
      typename Source::Loaded some[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) some[j] = source.Load(row + j * kColumnRows, column);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) add(some[j], row + j * kColumnRows);
    }
    for (; row < end; row += kColumnRows) add(source.Load(row, column), row);
  }
  __shared__ float of_warps[kColumnRows][kColumnThreads * kCount];
  for (int i = 0; i < kCount; ++i) of_warps[threadIdx.y][threadIdx.x * kCount + i] = sum[i];
  __syncthreads();
  const int threads = kColumnThreads * kColumnRows;
  for (int i = threadIdx.y * kColumnThreads + threadIdx.x; i < kColumnThreads * kCount; i += threads) {
    const long long into = blockIdx.x * static_cast<long long>(kColumnThreads) * kCount + i;
    if (into >= columns) continue;
    float all = 0;
    for (int row = 0; row < kColumnRows; ++row) all += of_warps[row][i];
    sums[blockIdx.y * columns + into] = all;
  }
}

// Sums the rows of each matrix in `parts`, which has consecutive matrices [rows, columns].
// blockIdx.y selects the matrix.
template <typename T>
__device__ void Finish(const float* parts, long long rows, long long columns, T* sums) {
  const long long column = blockIdx.x * static_cast<long long>(kColumnThreads) + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (long long row = threadIdx.y; row < rows; row += kFinishRows) {
      sum += parts[(blockIdx.y * rows + row) * columns + column];
    }
  }
  __shared__ float of_warps[kFinishRows][kColumnThreads + 1];
  of_warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Each warp adds the sums of one column.
  const float all = SumOfWarp(of_warps[threadIdx.x][threadIdx.y]);
  const long long into = blockIdx.x * static_cast<long long>(kColumnThreads) + threadIdx.y;
  if (threadIdx.x == 0 && into < columns) Put(all, sums[blockIdx.y * columns + into]);
}

// `wide` means that rows are aligned for packs of 16 bytes and consist of whole packs.
#define DSLAUNCH_KERNELS(T, name)                                                                  \
  DSLAUNCH_KERNEL __launch_bounds__(kRowThreads) cross_entropy_##name(                             \
      const T* logits, const long long* targets, long long columns, float* log_sums,               \
      float* losses, bool wide) {                                                                  \
    if (wide) {                                                                                    \
      CrossEntropy<T, 16 / sizeof(T)>(logits, targets, columns, log_sums, losses);                 \
    } else {                                                                                       \
      CrossEntropy<T, 1>(logits, targets, columns, log_sums, losses);                              \
    }                                                                                              \
  }                                                                                                \
  DSLAUNCH_KERNEL __launch_bounds__(kRowThreads) cross_entropy_gradient_##name(                    \
      const T* logits, const long long* targets, long long columns, const float* log_sums,         \
      const float* scales, T* gradients, bool wide) {                                              \
    if (wide) {                                                                                    \
      CrossEntropyGradient<T, 16 / sizeof(T)>(logits, targets, columns, log_sums, scales,          \
                                              gradients);                                          \
    } else {                                                                                       \
      CrossEntropyGradient<T, 1>(logits, targets, columns, log_sums, scales, gradients);           \
    }                                                                                              \
  }                                                                                                \
  DSLAUNCH_KERNEL __launch_bounds__(kRowThreads)                                                   \
      gelu_##name(const T* x, long long count, T* y, bool wide) {                                  \
    if (wide) {                                                                                    \
      GeluOfAll<T, 16 / sizeof(T)>(x, count, y);                                                   \
    } else {                                                                                       \
      GeluOfAll<T, 1>(x, count, y);                                                                \
    }                                                                                              \
  }                                                                                                \
  DSLAUNCH_KERNEL __launch_bounds__(kColumnThreads* kColumnRows) sum_rows_##name(                  \
      const T* values, long long rows, long long columns, float* sums, bool wide) {                \
    if (wide) {                                                                                    \
      using Source = Rows<T, 16 / sizeof(T)>;                                                      \
      SumColumns<T, 16 / sizeof(T)>(Source{values, columns}, rows, columns, sums);                 \
    } else {                                                                                       \
      SumColumns<T, 1>(Rows<T, 1>{values, columns}, rows, columns, sums);                          \
    }                                                                                              \
  }                                                                                                \
  DSLAUNCH_KERNEL __launch_bounds__(kColumnThreads* kColumnRows) gelu_gradient_##name(             \
      const T* gradient, const T* x, T* into, long long rows, long long columns,                   \
      float* sums, bool wide) {                                                                    \
    if (wide) {                                                                                    \
      using Source = GeluGradients<T, 16 / sizeof(T)>;                                             \
      SumColumns<T, 16 / sizeof(T)>(Source{gradient, x, columns, into}, rows, columns, sums);      \
    } else {                                                                                       \
      SumColumns<T, 1>(GeluGradients<T, 1>{gradient, x, columns, into}, rows, columns, sums);      \
    }                                                                                              \
  }                                                                                                \
  DSLAUNCH_KERNEL __launch_bounds__(kColumnThreads* kColumnRows) join_thirds_##name(               \
      const T* first, const T* second, const T* third, T* into, long long rows,                    \
      long long columns, float* sums, bool wide) {                                                 \
    if (wide) {                                                                                    \
      using Source = Thirds<T, 16 / sizeof(T)>;                                                    \
      SumColumns<T, 16 / sizeof(T)>(Source{first, second, third, columns / 3, into}, rows, columns, sums);\
    } else {                                                                                       \
      SumColumns<T, 1>(Thirds<T, 1>{first, second, third, columns / 3, into}, rows, columns, sums);\
    }                                                                                              \
  }                                                                                                \
  DSLAUNCH_KERNEL __launch_bounds__(kColumnThreads* kFinishRows) finish_##name(                    \
      const float* parts, long long rows, long long columns, T* sums) {                            \
    Finish(parts, rows, columns, sums);                                                            \
  }

DSLAUNCH_KERNELS(float, float)
DSLAUNCH_KERNELS(Half, half)
DSLAUNCH_KERNELS(Bfloat, bfloat)
