// Implements causal self-attention of a decoder, with grouped-query heads, rotary embeddings and
// sliding windows.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/decoder/layers.h"
#include "trainer/families/decoder/positions.h"
#include "trainer/nn/documents.h"

namespace dslaunch::decoder {

class AttentionImpl : public torch::nn::Module {
 public:
  // Makes the attention of layer `layer`, counted from 0. All layers of the model share `positions`
  // and `documents`. Heads are divided over the ranks of `tensor`.
  AttentionImpl(const DecoderConfig& config, int64_t layer, std::shared_ptr<Positions> positions,
                std::shared_ptr<Documents> documents, const TensorParallel& tensor);
  // Returns a tensor of the shape of `input`, [B, T, hidden_size], or with sequence parallelism [B,
  // T / parts, hidden_size].
  at::Tensor forward(const at::Tensor& input);

 private:
  // Returns the attention output, which has the query's shape, [B, T, heads, head_dim].
  at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);
  // Projects [B, T, hidden_size] to [B, T, number of this rank's heads, head_dim].
  at::Tensor Heads(Linear& projection, const at::Tensor& x) const;

  const TensorParallel tensor_;
  int64_t layer_;
  int64_t head_dim_;
  double dropout_;
  std::optional<int64_t> window_;
  std::shared_ptr<Positions> positions_;
  std::shared_ptr<Documents> documents_;
  Linear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
  Norm q_norm_{nullptr}, k_norm_{nullptr};  // null unless the model's type is qwen3
};
TORCH_MODULE(Attention);

}  // namespace dslaunch::decoder
