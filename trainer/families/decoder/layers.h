// The layers that a decoder's blocks are made of, with Hugging Face's names of parameters.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "trainer/families/decoder/decoder_config.h"

namespace dslaunch::decoder {

// A linear layer without or with bias. The weight is drawn from normal(0, initializer_range).
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(const DecoderConfig& config, int64_t in, int64_t out, bool bias);
  // [..., in] -> [..., out]
  at::Tensor forward(const at::Tensor& x);

 private:
  at::Tensor weight_;  // [out, in]
  at::Tensor bias_;    // [out], or undefined
};
TORCH_MODULE(Linear);

// RMS norm over the last dimension.
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(const DecoderConfig& config, int64_t width);
  at::Tensor forward(const at::Tensor& x);

 private:
  double epsilon_;
  at::Tensor weight_;  // [width]
};
TORCH_MODULE(Norm);

class TokenEmbeddingImpl : public torch::nn::Module {
 public:
  explicit TokenEmbeddingImpl(const DecoderConfig& config);
  // int64 [B, T] -> [B, T, hidden_size]. Throws kBadInput for other inputs and for more than
  // max_position_embeddings tokens.
  at::Tensor forward(const at::Tensor& tokens);

  at::Tensor weight;  // [vocab_size, hidden_size]

 private:
  int64_t max_positions_;
  int64_t padding_ = -1;  // token whose embedding gets no gradient; -1: none
};
TORCH_MODULE(TokenEmbedding);

}  // namespace dslaunch::decoder
