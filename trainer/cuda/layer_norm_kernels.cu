// Defines the kernels of layer normalization (Ba, Kiros and Hinton 2016, section 3), fused with the
// surrounding additions. One warp processes each row.

// Computes sums = x + branch, unless `branch` is null, and normalized = (sums - mean) / deviation *
// weight + bias. `normalized` is computed from the rounded sums.
DSLAUNCH_KERNEL __launch_bounds__(kWarp* kNormWarps)
    layer_norm(const T* x, const T* branch, const T* weight, const T* bias, long long rows, float epsilon,
               T* sums, T* normalized, float* means, float* inverse_deviations) {
  const long long row = blockIdx.x * static_cast<long long>(kNormWarps) + threadIdx.y;
  if (row >= rows) return;
  const long long begin = row * kColumns;
  float value[kPacks][kCount];
  float sum = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!IsInRow(p)) continue;
    RowPack pack = Get(x + begin, p);
    if (branch != nullptr) {
      const RowPack other = Get(branch + begin, p);
      for (int i = 0; i < kCount; ++i) Put(ToFloat(pack.at[i]) + ToFloat(other.at[i]), pack.at[i]);
      Store(pack, PackAt(sums + begin, p));
    }
    for (int i = 0; i < kCount; ++i) sum += value[p][i] = ToFloat(pack.at[i]);
  }
  const float mean = SumOfWarp(sum) / kColumns;
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!IsInRow(p)) continue;
    for (int i = 0; i < kCount; ++i) squares += (value[p][i] - mean) * (value[p][i] - mean);
  }
  const float inverse = rsqrtf(SumOfWarp(squares) / kColumns + epsilon);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!IsInRow(p)) continue;
    const RowPack w = Get(weight, p), b = Get(bias, p);
    RowPack out;
    for (int i = 0; i < kCount; ++i) {
      Put((value[p][i] - mean) * inverse * ToFloat(w.at[i]) + ToFloat(b.at[i]), out.at[i]);
    }
    Store(out, PackAt(normalized + begin, p));
  }
  if (threadIdx.x == 0) {
    means[row] = mean;
    inverse_deviations[row] = inverse;
  }
}

// Computes the gradients. `gradient` is the gradient by `normalized`. `sum_gradient`, which may be
// null, is the gradient by `sums`, which is called x here. Writes the gradient by x to
// `x_gradient`. Writes the gradients by weight and bias, summed over the rows of each block, to
// `weights` and `biases` [gridDim.x, kColumns].
DSLAUNCH_KERNEL __launch_bounds__(kWarp* kNormWarps)
    layer_norm_gradients(const T* gradient, const T* sum_gradient, const T* x, const T* weight,
                         const float* means, const float* inverse_deviations, long long rows, T* x_gradient,
                         float* weights, float* biases) {
  float of_weight[kPacks][kCount] = {}, of_bias[kPacks][kCount] = {};
  const long long step = gridDim.x * static_cast<long long>(kNormWarps);
  for (long long row = blockIdx.x * static_cast<long long>(kNormWarps) + threadIdx.y; row < rows; row += step) {
    const long long begin = row * kColumns;
    const float mean = means[row], inverse = inverse_deviations[row];
    RowPack g[kPacks], in[kPacks], more[kPacks];
    float sum = 0, product = 0;  // sums of the gradient by the normalized values
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!IsInRow(p)) continue;
      g[p] = Get(gradient + begin, p);
      in[p] = Get(x + begin, p);
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!IsInRow(p)) continue;
      const RowPack w = Get(weight, p);
      for (int i = 0; i < kCount; ++i) {
        const float normal = (ToFloat(in[p].at[i]) - mean) * inverse;
        const float inner = ToFloat(g[p].at[i]) * ToFloat(w.at[i]);
        of_weight[p][i] += ToFloat(g[p].at[i]) * normal;
        of_bias[p][i] += ToFloat(g[p].at[i]);
        sum += inner;
        product += inner * normal;
      }
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (sum_gradient != nullptr && IsInRow(p)) more[p] = Get(sum_gradient + begin, p);
    }
    const float mean_sum = SumOfWarp(sum) / kColumns, mean_product = SumOfWarp(product) / kColumns;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!IsInRow(p)) continue;
      const RowPack w = Get(weight, p);
      RowPack out;
      for (int i = 0; i < kCount; ++i) {
        const float normal = (ToFloat(in[p].at[i]) - mean) * inverse;
        const float inner = ToFloat(g[p].at[i]) * ToFloat(w.at[i]);
        const float own = (inner - mean_sum - normal * mean_product) * inverse;
        Put(sum_gradient != nullptr ? ToFloat(more[p].at[i]) + own : own, out.at[i]);
      }
      Store(out, PackAt(x_gradient + begin, p));
    }
  }
  WriteSumsOfBlock(of_weight, weights);
  WriteSumsOfBlock(of_bias, biases);
}
