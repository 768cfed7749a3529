#include "trainer/families/decoder/attention.h"

#include <utility>

namespace dslaunch::decoder {

AttentionImpl::AttentionImpl(const DecoderConfig& config, int64_t layer,
                             std::shared_ptr<Positions> positions)
    : head_dim_(config.width_of_head()),
      dropout_(config.attention_dropout),
      window_(config.WindowOf(layer)),
      positions_(std::move(positions)) {
  const int64_t width = config.hidden_size, inner = config.num_attention_heads * head_dim_;
  const auto projection = [&](const char* name, int64_t in, int64_t out, bool bias) {
    return register_module(name, Linear(config, in, out, bias));
  };
  const int64_t kv_inner = config.kv_heads() * head_dim_;
  q_proj_ = projection("q_proj", width, inner, config.qkv_bias());
  k_proj_ = projection("k_proj", width, kv_inner, config.qkv_bias());
  v_proj_ = projection("v_proj", width, kv_inner, config.qkv_bias());
  o_proj_ = projection("o_proj", inner, width, config.output_bias());
  if (!config.norms_heads()) return;
  q_norm_ = register_module("q_norm", Norm(config, head_dim_));
  k_norm_ = register_module("k_norm", Norm(config, head_dim_));
}

at::Tensor AttentionImpl::forward(const at::Tensor& x) {
  at::Tensor query = Heads(q_proj_, x), key = Heads(k_proj_, x);
  const at::Tensor value = Heads(v_proj_, x);
  if (q_norm_) query = q_norm_(query);
  if (k_norm_) key = k_norm_(key);
  const auto [cosines, sines] = positions_->Rotation(query);
  query = Rotate(query, cosines, sines);
  key = Rotate(key, cosines, sines);
  const int64_t length = x.size(1);
  const bool slides = window_ && length > *window_;
  const std::optional<at::Tensor> mask =
      slides ? std::optional(positions_->Mask(length, *window_, x)) : std::nullopt;
  const at::Tensor mixed = at::scaled_dot_product_attention(
      query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask,
      is_training() ? dropout_ : 0.0, /*is_causal=*/!slides, /*scale=*/std::nullopt,
      /*enable_gqa=*/query.size(2) != key.size(2));
  return o_proj_(mixed.transpose(1, 2).flatten(2));
}

at::Tensor AttentionImpl::Heads(Linear& projection, const at::Tensor& x) const {
  return projection(x).unflatten(-1, {-1, head_dim_});
}

}  // namespace dslaunch::decoder
