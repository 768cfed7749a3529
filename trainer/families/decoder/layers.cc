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

}  // namespace

LinearImpl::LinearImpl(const DecoderConfig& config, int64_t in, int64_t out, bool bias,
                       Divided divided, const TensorParallel& tensor, int64_t kv_heads)
    : AdaptableLinear(in, out),
      divided_(divided),
      tensor_(tensor),
      holders_(HoldersOf(kv_heads, tensor)) {
  const auto cut = [&](size_t dim, int64_t size) {
    const TensorParallel of_holders = {.parts = tensor.parts / holders_,
                                       .part = tensor.part / holders_};
    std::optional<Cut> result = EqualCut(of_holders, dim, size);
    if (result) result->is_copy = tensor.part % holders_ > 0;
    return result;
  };
  const bool by_outputs = divided == Divided::kOutputs;
  weight_ =
      RegisterPart("weight", DrawNormal({out, in}, config), by_outputs ? cut(0, out) : cut(1, in));
  if (!bias) return;
  bias_ = RegisterPart("bias", at::zeros({out}), by_outputs ? cut(0, out) : std::nullopt);
}

at::Tensor LinearImpl::forward(const at::Tensor& x) {
  if (divided_ == Divided::kInputs && tensor_.divides()) {
    return LeaveRegionAndAdd(ApplyLinear(x, weight_), bias_, tensor_);
  }
  const auto shared = [&](const at::Tensor& part) {
    return part.defined() ? SumHoldersGradients(part, holders_, tensor_) : part;
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
    // PyTorch counts negative ids, which old files have, from the end.
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
