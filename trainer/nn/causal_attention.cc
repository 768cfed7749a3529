#include "trainer/nn/causal_attention.h"

#include <ATen/ATen.h>

#include <vector>

namespace dslaunch {
namespace {

// Alignment of a mask's rows in elements. LibTorch copies a mask whose rows are not aligned.
constexpr int64_t kAlignment = 8;
// Score of a masked position: the lowest fp16 number, which LibTorch also uses for cuDNN.
constexpr double kMasked = -65504;

// Returns x with each head repeated `times` times.
at::Tensor RepeatHeads(const at::Tensor& x, int64_t times) {
  return x.unsqueeze(3).expand({-1, -1, -1, times, -1}).flatten(2, 3);
}

}  // namespace

at::Tensor GroupedAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::optional<at::Tensor>& mask, double dropout, bool is_causal) {
  return at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2),
                                          value.transpose(1, 2), mask, dropout, is_causal,
                                          /*scale=*/std::nullopt,
                                          /*enable_gqa=*/query.size(2) != key.size(2))
      .transpose(1, 2);
}

at::Tensor CausalAttention(const at::Tensor& query, at::Tensor key, at::Tensor value,
                           const std::optional<at::Tensor>& mask, double dropout) {
  // LibTorch 2.11's memory-efficient kernel accepts a mask, but only with equal numbers of heads.
  // Without this kernel and cuDNN's, LibTorch computes scores of [B, heads, T, T].
  if (mask && !query.is_cpu() && key.size(2) < query.size(2)) {
    const int64_t times = query.size(2) / key.size(2);
    key = RepeatHeads(key, times);
    value = RepeatHeads(value, times);
  }
  return GroupedAttention(query, key, value, mask, dropout, /*is_causal=*/!mask);
}

at::Tensor AdditiveMask(const at::Tensor& attends, at::ScalarType type) {
  const int64_t length = attends.size(-1);
  std::vector<int64_t> shape = attends.sizes().vec();
  shape.back() = (length + kAlignment - 1) / kAlignment * kAlignment;
  const at::Tensor mask = at::zeros(shape, attends.options().dtype(type)).narrow(-1, 0, length);
  return mask.masked_fill_(attends.logical_not(), kMasked);
}

}  // namespace dslaunch
