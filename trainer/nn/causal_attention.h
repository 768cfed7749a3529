// Causal self-attention with a mask that all layers share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace dslaunch {

// Returns the attention output, of the query's shape [B, T, heads, head_dim]. A token attends to
// itself and to the tokens before it, or as `mask` says: bool, or the result of AdditiveMask, with
// the shape [T, T] or [B, 1, T, T]. `key` and `value` may have fewer heads, whose number must
// divide the number of query heads.
at::Tensor CausalAttention(const at::Tensor& query, at::Tensor key, at::Tensor value,
                           const std::optional<at::Tensor>& mask, double dropout);

// Returns a mask that is added to the scores: 0 where `attends`, bool [..., T, T], is true, else a
// number so low that the softmax is 0. `type` is the query's. LibTorch makes such a mask of a bool
// mask in each layer, and keeps it for the backward pass.
at::Tensor AdditiveMask(const at::Tensor& attends, at::ScalarType type);

}  // namespace dslaunch
