// Implements the layers of a decoder's blocks, with Hugging Face's parameter names.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "trainer/families/decoder/decoder_config.h"
#include "trainer/nn/documents.h"
#include "trainer/nn/lora/lora.h"
#include "trainer/nn/normalized_sum.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch::decoder {

// The dimension of a linear layer that is divided over a tensor-parallel group.
enum class Divided {
  kOutputs,  // outputs are divided; the input is the result of EnterRegion
  kInputs,   // inputs are divided; the output is the result of LeaveRegion
};

// A linear layer with or without bias, whose weight is drawn from normal(0, initializer_range).
class LinearImpl : public AdaptableLinear {
 public:
  // Draws the weight. `kv_heads` is the number of heads that form the outputs, a multiple or a
  // divisor of the number of ranks; 0 if the outputs may be cut anywhere. If there are fewer heads
  // than ranks, several ranks have the same head.
  LinearImpl(const DecoderConfig& config, int64_t in, int64_t out, bool bias, Divided divided,
             const TensorParallel& tensor, int64_t kv_heads = 0);
  // Maps [..., in] to [..., out]. The dimension that is divided has the size of this rank's part.
  at::Tensor forward(const at::Tensor& x);

 private:
  LinearImpl(const DecoderConfig& config, int64_t in, int64_t out, bool bias,
             const LinearDivision& division);

  at::Tensor weight_;  // shape [out, in]
  at::Tensor bias_;    // shape [out]; undefined without bias
};
TORCH_MODULE(Linear);

// A root mean square norm over the last dimension.
class NormImpl : public torch::nn::Module {
 public:
  // Makes a norm over vectors of `width` elements. With `is_partial`, the ranks of `tensor`
  // normalize different vectors, so the weight's gradient is summed over the ranks.
  NormImpl(const DecoderConfig& config, int64_t width, const TensorParallel& tensor,
           bool is_partial);
  at::Tensor forward(const at::Tensor& x);
  // Returns AddAndRmsNorm(x, branch) with this norm's weight and epsilon.
  NormalizedSum Add(const at::Tensor& x, const at::Tensor& branch = {});

 private:
  double epsilon_;
  const TensorParallel sums_;  // ranks over which the gradient of the weight is summed
  at::Tensor weight_;          // [width]
};
TORCH_MODULE(Norm);

class TokenEmbeddingImpl : public DividedModule {
 public:
  // Makes an embedding. If the config separates documents, each batch is passed to `documents`,
  // which all layers of the model share.
  TokenEmbeddingImpl(const DecoderConfig& config, std::shared_ptr<Documents> documents,
                     const TensorParallel& tensor);
  // Maps tokens, int64 [B, T], to [B, T, hidden_size], or with sequence parallelism to this rank's
  // tokens of that tensor. Throws kBadInput for inputs of another shape or type, and for more than
  // max_position_embeddings tokens.
  at::Tensor forward(const at::Tensor& tokens);

  at::Tensor weight;  // shape [vocab_size, hidden_size], or only this rank's rows

 private:
  const TensorParallel tensor_;
  int64_t vocabulary_;
  int64_t max_positions_;
  const bool separates_documents_;
  std::shared_ptr<Documents> documents_;
  int64_t padding_ = -1;  // token whose embedding gets no gradient; -1 if all embeddings get one
};
TORCH_MODULE(TokenEmbedding);

}  // namespace dslaunch::decoder
