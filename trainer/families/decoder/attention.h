// Implements causal self-attention of a decoder, with grouped heads, rotary positions and sliding
// windows.
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
  // Makes layer `layer` of the model, counted from 0. `positions` and `documents` are shared by the
  // layers of the model. Heads are divided over `tensor`.
  AttentionImpl(const DecoderConfig& config, int64_t layer, std::shared_ptr<Positions> positions,
                std::shared_ptr<Documents> documents, const TensorParallel& tensor);
  // Maps [B, T, hidden_size] to the same shape, or with sequence parallelism [B, T / parts,
  // hidden_size] to the same shape.
  at::Tensor forward(const at::Tensor& input);

 private:
  // Returns the attention output, of the query's shape [B, T, heads, head_dim].
  at::Tensor Attend(const at::Tensor& query, at::Tensor key, at::Tensor value);
  // Maps [B, T, hidden_size] to [B, T, number of this rank's heads, head_dim].
  at::Tensor Heads(Linear& projection, const at::Tensor& x) const;

  const TensorParallel tensor_;
  int64_t layer_;
  int64_t head_dim_;
  double dropout_;
  std::optional<int64_t> window_;
  std::shared_ptr<Positions> positions_;
  std::shared_ptr<Documents> documents_;
  Linear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
  Norm q_norm_{nullptr}, k_norm_{nullptr};  // null unless the model is a qwen3
};
TORCH_MODULE(Attention);

}  // namespace dslaunch::decoder
