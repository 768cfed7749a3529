// Defines the kernels of RMS normalization (Zhang and Sennrich 2019, section 4), fused with the
// surrounding additions.

// Returns, in every lane that processes a row, the sum over the lanes of this row. All threads of
// the block must call it.
__device__ float SumOfRow(float mine) {
  mine = SumOfWarp(mine);
  if constexpr (kRowWarps > 1) {
    __shared__ float of_warps[kNormWarps];
    __syncthreads();  // all threads have read the last call's sums
    if (threadIdx.x == 0) of_warps[threadIdx.y] = mine;
    __syncthreads();
    const int first = threadIdx.y / kRowWarps * kRowWarps;
    mine = 0;
    for (int i = 0; i < kRowWarps; ++i) mine += of_warps[first + i];
  }
  return mine;
}

// Computes sums = x + branch, unless `branch` is null, and normalized = weight * (sums / root mean
// square). `normalized` is computed from the rounded sums, and the quotient is rounded, too.
DSLAUNCH_KERNEL __launch_bounds__(kWarp* kNormWarps)
    rms_norm(const T* x, const T* branch, const T* weight, long long rows, float epsilon, T* sums,
             T* normalized, float* inverses) {
  const long long row = blockIdx.x * static_cast<long long>(kBlockRows) + threadIdx.y / kRowWarps;
  const bool is_there = row < rows;
  const long long begin = row * kColumns;
  RowPack value[kPacks];
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!is_there || !IsInRow(p)) continue;
    value[p] = Get(x + begin, p);
    if (branch != nullptr) {
      const RowPack other = Get(branch + begin, p);
      for (int i = 0; i < kCount; ++i) {
        Put(ToFloat(value[p].at[i]) + ToFloat(other.at[i]), value[p].at[i]);
      }
      Store(value[p], PackAt(sums + begin, p));
    }
    for (int i = 0; i < kCount; ++i) squares += ToFloat(value[p].at[i]) * ToFloat(value[p].at[i]);
  }
  const float inverse = rsqrtf(SumOfRow(squares) / kColumns + epsilon);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!is_there || !IsInRow(p)) continue;
    const RowPack w = Get(weight, p);
    RowPack out;
    for (int i = 0; i < kCount; ++i) {
      Put(ToFloat(value[p].at[i]) * inverse, out.at[i]);
      Put(ToFloat(out.at[i]) * ToFloat(w.at[i]), out.at[i]);
    }
    Store(out, PackAt(normalized + begin, p));
  }
  if (is_there && LaneOfRow() == 0) inverses[row] = inverse;
}

// Computes the gradients. `gradient` is the gradient by `normalized`. `sum_gradient`, which may be
// null, is the gradient by `sums`, which is called x here. Writes the gradient by x to
// `x_gradient`. Writes the gradient by weight, summed over the rows of each block, to `weights`
// [gridDim.x, kColumns].
DSLAUNCH_KERNEL __launch_bounds__(kWarp* kNormWarps)
    rms_norm_gradients(const T* gradient, const T* sum_gradient, const T* x, const T* weight,
                       const float* inverses, long long rows, T* x_gradient, float* weights) {
  float of_weight[kPacks][kCount] = {};
  const int slot = threadIdx.y / kRowWarps;
  const long long step = gridDim.x * static_cast<long long>(kBlockRows);
  for (long long first = blockIdx.x * static_cast<long long>(kBlockRows); first < rows; first += step) {
    const long long row = first + slot, begin = row * kColumns;
    const bool is_there = row < rows;
    const float inverse = is_there ? inverses[row] : 0;
    RowPack g[kPacks], in[kPacks];
    float product = 0;  // sum of each quotient times the gradient by it
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!is_there || !IsInRow(p)) continue;
      g[p] = Get(gradient + begin, p);
      in[p] = Get(x + begin, p);
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!is_there || !IsInRow(p)) continue;
      const RowPack w = Get(weight, p);
      for (int i = 0; i < kCount; ++i) {
        const float quotient = ToFloat(in[p].at[i]) * inverse;
        of_weight[p][i] += ToFloat(g[p].at[i]) * quotient;
        product += ToFloat(g[p].at[i]) * ToFloat(w.at[i]) * quotient;
      }
    }
    const float mean_product = SumOfRow(product) / kColumns;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!is_there || !IsInRow(p)) continue;
      const RowPack w = Get(weight, p);
      RowPack out;
      for (int i = 0; i < kCount; ++i) {
        const float quotient = ToFloat(in[p].at[i]) * inverse;
        const float inner = ToFloat(g[p].at[i]) * ToFloat(w.at[i]);
        Put((inner - quotient * mean_product) * inverse, out.at[i]);
      }
      if (sum_gradient != nullptr) {
        const RowPack more = Get(sum_gradient + begin, p);
        for (int i = 0; i < kCount; ++i) Put(ToFloat(more.at[i]) + ToFloat(out.at[i]), out.at[i]);
      }
      Store(out, PackAt(x_gradient + begin, p));
    }
  }
  WriteSumsOfBlock(of_weight, weights);
}
