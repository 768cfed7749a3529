#include "trainer/families/decoder/layers.h"

#include <string>

#include "trainer/base/train_error.h"
#include "trainer/nn/rms_norm.h"
#include "trainer/nn/split_backward.h"

namespace dslaunch::decoder {
namespace {

at::Tensor DrawNormal(at::IntArrayRef shape, const DecoderConfig& config) {
  return at::empty(shape).normal_(0, config.initializer_range);
}

}  // namespace

LinearImpl::LinearImpl(const DecoderConfig& config, int64_t in, int64_t out, bool bias)
    : weight_(register_parameter("weight", DrawNormal({out, in}, config))) {
  if (bias) bias_ = register_parameter("bias", at::zeros({out}));
}

at::Tensor LinearImpl::forward(const at::Tensor& x) { return ApplyLinear(x, weight_, bias_); }

NormImpl::NormImpl(const DecoderConfig& config, int64_t width)
    : epsilon_(config.rms_norm_eps), weight_(register_parameter("weight", at::ones({width}))) {}

at::Tensor NormImpl::forward(const at::Tensor& x) { return ApplyRmsNorm(x, weight_, epsilon_); }

TokenEmbeddingImpl::TokenEmbeddingImpl(const DecoderConfig& config)
    : weight(register_parameter("weight",
                                DrawNormal({config.vocab_size, config.hidden_size}, config))),
      max_positions_(config.max_position_embeddings) {
  if (!config.pad_token_id) return;
  // PyTorch counts negative ids, which old files have, from the end.
  padding_ = *config.pad_token_id < 0 ? config.vocab_size - 1 : *config.pad_token_id;
  const at::NoGradGuard no_grad;
  weight.select(0, padding_).zero_();
}

at::Tensor TokenEmbeddingImpl::forward(const at::Tensor& tokens) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong) {
    RefuseInput("model.type decoder takes token ids; use data of type tokens or text");
  }
  if (tokens.size(1) > max_positions_) {
    RefuseInput("the decoder was given " + std::to_string(tokens.size(1)) +
                " tokens, more than model.max_position_embeddings, " +
                std::to_string(max_positions_));
  }
  return at::embedding(weight, tokens, padding_);
}

}  // namespace dslaunch::decoder
