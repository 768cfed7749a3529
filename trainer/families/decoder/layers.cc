#include "trainer/families/decoder/layers.h"

#include <optional>
#include <string>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/nn/rms_norm.h"
#include "trainer/nn/split_backward.h"
#include "trainer/nn/tensor_parallel/exchanges.h"
#include "trainer/nn/tensor_parallel/vocabulary.h"

namespace dslaunch::decoder {
namespace {

at::Tensor DrawNormal(at::IntArrayRef shape, const DecoderConfig& config) {
  return at::empty(shape).normal_(0, config.initializer_range);
}

int HoldersOf(int64_t heads, const TensorParallel& tensor) {
  return heads > 0 && heads < tensor.parts ? tensor.parts / static_cast<int>(heads) : 1;
}

LinearDivision DivisionOf(int64_t in, int64_t out, Divided divided, const TensorParallel& tensor,
                          int64_t kv_heads) {
  LinearDivision division;
  division.tensor = tensor;
  division.holders = HoldersOf(kv_heads, tensor);
  if (divided == Divided::kInputs) {
    division.inputs = EqualCut(tensor, 1, in);
    return division;
  }
  const TensorParallel of_holders = {.parts = tensor.parts / division.holders,
                                     .part = tensor.part / division.holders};
  division.outputs = EqualCut(of_holders, 0, out);
  if (division.outputs) division.outputs->is_copy = tensor.part % division.holders > 0;
  return division;
}

}  // namespace

LinearImpl::LinearImpl(const DecoderConfig& config, int64_t in, int64_t out, bool bias,
                       Divided divided, const TensorParallel& tensor, int64_t kv_heads)
    : LinearImpl(config, in, out, bias, DivisionOf(in, out, divided, tensor, kv_heads)) {}

LinearImpl::LinearImpl(const DecoderConfig& config, int64_t in, int64_t out, bool bias,
                       const LinearDivision& division)
    : AdaptableLinear(in, out, division),
      weight_(RegisterPart("weight", DrawNormal({out, in}, config),
                           division.outputs ? division.outputs : division.inputs)) {
  if (bias) bias_ = RegisterPart("bias", at::zeros({out}), division.outputs);
}

at::Tensor LinearImpl::forward(const at::Tensor& x) {
  const auto& [tensor, outputs, inputs, holders] = division();
  if (inputs) {
    return LeaveRegionAndAdd(Adapted(ApplyLinear(x, weight_), x), bias_, tensor);
  }
  const auto shared = [&](const at::Tensor& part) {
    return part.defined() ? SumHoldersGradients(part, holders, tensor) : part;
  };
  return Adapted(ApplyLinear(x, shared(weight_), shared(bias_)), x);
}

NormImpl::NormImpl(const DecoderConfig& config, int64_t width, const TensorParallel& tensor,
                   bool is_partial)
    : epsilon_(config.rms_norm_eps),
      sums_(is_partial ? tensor : TensorParallel()),
      weight_(register_parameter("weight", at::ones({width}))) {}

at::Tensor NormImpl::forward(const at::Tensor& x) {
  return ApplyRmsNorm(x, SumGradients(weight_, sums_), epsilon_);
}

NormalizedSum NormImpl::Add(const at::Tensor& x, const at::Tensor& branch) {
  return AddAndRmsNorm(x, branch, SumGradients(weight_, sums_), epsilon_);
}

TokenEmbeddingImpl::TokenEmbeddingImpl(const DecoderConfig& config,
                                       std::shared_ptr<Documents> documents,
                                       const TensorParallel& tensor)
    : tensor_(tensor),
      vocabulary_(config.vocab_size),
      max_positions_(config.max_position_embeddings),
      separates_documents_(config.separates_documents),
      documents_(std::move(documents)) {
  const at::Tensor whole = DrawNormal({config.vocab_size, config.hidden_size}, config);
  if (config.pad_token_id) {
    // Old files have the id -1, which PyTorch counts from the end, so the last token is meant.
    padding_ = *config.pad_token_id < 0 ? config.vocab_size - 1 : *config.pad_token_id;
    whole.select(0, padding_).zero_();
  }
  weight = RegisterPart("weight", whole, EqualCut(tensor, 0, config.vocab_size));
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
  const at::Tensor ids = separates_documents_ ? documents_->Divide(tokens) : tokens;
  return EmbedTokens(ids, weight, vocabulary_, padding_, tensor_);
}

}  // namespace dslaunch::decoder
