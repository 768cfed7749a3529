#include "trainer/families/decoder/attention.h"

#include <utility>

#include "trainer/nn/causal_attention.h"
#include "trainer/nn/rotate_heads.h"
#include "trainer/nn/tensor_parallel/exchanges.h"
#include "trainer/nn/tensor_parallel/region_seed.h"

namespace dslaunch::decoder {

AttentionImpl::AttentionImpl(const DecoderConfig& config, int64_t layer,
                             std::shared_ptr<Positions> positions,
                             std::shared_ptr<Documents> documents, const TensorParallel& tensor)
    : tensor_(tensor),
      layer_(layer),
      head_dim_(config.width_of_head()),
      dropout_(config.attention_dropout),
      window_(config.WindowOf(layer)),
      positions_(std::move(positions)),
      documents_(std::move(documents)) {
  const int64_t width = config.hidden_size, inner = config.num_attention_heads * head_dim_;
  const auto projection = [&](const char* name, int64_t out, int64_t kv_heads) {
    return register_module(
        name, Linear(config, width, out, config.qkv_bias(), Divided::kOutputs, tensor, kv_heads));
  };
  const int64_t kv_heads = config.kv_heads();
  q_proj_ = projection("q_proj", inner, 0);
  k_proj_ = projection("k_proj", kv_heads * head_dim_, kv_heads);
  v_proj_ = projection("v_proj", kv_heads * head_dim_, kv_heads);
  o_proj_ = register_module(
      "o_proj", Linear(config, inner, width, config.output_bias(), Divided::kInputs, tensor));
  if (!config.norms_heads()) return;
  q_norm_ = register_module("q_norm", Norm(config, head_dim_, tensor, /*is_partial=*/true));
  k_norm_ = register_module("k_norm", Norm(config, head_dim_, tensor, /*is_partial=*/true));
}

at::Tensor AttentionImpl::forward(const at::Tensor& input) {
  const at::Tensor x = EnterRegion(input, tensor_);
  at::Tensor query = Heads(q_proj_, x), key = Heads(k_proj_, x);
  const at::Tensor value = Heads(v_proj_, x);
  if (q_norm_) query = q_norm_(query);
  if (k_norm_) key = k_norm_(key);
  const auto [cosines, sines] = positions_->Rotation(query, documents_->positions());
  query = RotateHeads(query, cosines, sines);
  key = RotateHeads(key, cosines, sines);
  return o_proj_(Attend(query, key, value).flatten(2));
}

at::Tensor AttentionImpl::Attend(const at::Tensor& query, const at::Tensor& key,
                                 const at::Tensor& value) {
  const double dropout = is_training() ? dropout_ : 0.0;
  const RegionSeed seed(tensor_, query.device(), dropout > 0);
  if (documents_->several()) return documents_->Attend(query, key, value, dropout, window_);
  KeyValueCache* const cache = positions_->cache();
  const auto seen = cache == nullptr ? std::nullopt : cache->Extend(layer_, window_, key, value);
  if (!seen) {
    const int64_t length = query.size(1);
    const bool slides = window_ && length > *window_;
    return CausalAttention(
        query, key, value,
        slides ? std::optional(positions_->Mask(length, *window_, query)) : std::nullopt, dropout);
  }
  return GroupedAttention(query, seen->keys, seen->values, seen->mask, dropout,
                          /*is_causal=*/false);
}

at::Tensor AttentionImpl::Heads(Linear& projection, const at::Tensor& x) const {
  return projection(x).unflatten(-1, {-1, head_dim_});
}

}  // namespace dslaunch::decoder
