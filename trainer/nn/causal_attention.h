// Computes causal self-attention, optionally with a mask that all layers share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace dslaunch {

// Calls LibTorch's scaled_dot_product_attention with heads in dimension 2. Returns the attention
// output, which has the shape of the query, [B, T, heads, head_dim]. `key` and `value` may have
// fewer heads, whose number must divide the number of query heads.
at::Tensor GroupedAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::optional<at::Tensor>& mask, double dropout, bool is_causal);

// Returns the output of GroupedAttention in a whole sequence. Without `mask` a token attends to
// itself and to all earlier tokens. `mask`, [T, T] or [B, 1, T, T], is bool (true where a token
// attends) or a result of AdditiveMask.
at::Tensor CausalAttention(const at::Tensor& query, at::Tensor key, at::Tensor value,
                           const std::optional<at::Tensor>& mask, double dropout);

// Returns a mask that is added to the scores: 0 where `attends`, bool [..., T, T], is true, and
// otherwise a number so low that the softmax is 0. `type` is the query's dtype. LibTorch converts a
// bool mask to such a mask in each layer and keeps it for the backward pass, so sharing one
// additive mask saves memory.
at::Tensor AdditiveMask(const at::Tensor& attends, at::ScalarType type);

}  // namespace dslaunch
