// Implements the embedding and the loss of a language model whose vocabulary is divided over a
// tensor-parallel group. Each rank has the rows RangeOf(tensor, vocabulary) of the embedding and of
// the head, followed by padding. Without division the functions call LibTorch's functions.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "dslaunch/model.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {

// Returns the embeddings of tokens, int64 [B, T], divided like the result of LeaveRegion. `weight`
// has this rank's rows of [vocabulary, H]. `padding` is the token whose embedding gets no gradient,
// or -1.
at::Tensor EmbedTokens(const at::Tensor& tokens, const at::Tensor& weight, int64_t vocabulary,
                       int64_t padding, const TensorParallel& tensor);

// Returns CrossEntropyOfLogits (trainer/nn/cross_entropy.h) of the whole logits, given this rank's
// columns, [..., vocabulary / parts rounded up]. `targets` must be equal on all ranks. The forward
// pass has two exchanges: the largest logit of each row, then the sum of the exponentials and the
// target's logit. The backward pass has no exchange.
at::Tensor CrossEntropyOfParts(const at::Tensor& logits, const at::Tensor& targets,
                               int64_t vocabulary, const TensorParallel& tensor,
                               int64_t reduction = at::Reduction::Mean);

// A model whose output is logits over a vocabulary.
class LanguageModel : public Model {
 public:
  LanguageModel(int64_t vocabulary, const TensorParallel& tensor)
      : vocabulary_(vocabulary), tensor_(tensor) {}

  at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets,
                  int64_t reduction) const override;
  at::Tensor WholeOutput(const at::Tensor& output) const override;

 protected:
  const TensorParallel& tensor() const { return tensor_; }

 private:
  int64_t vocabulary_;
  TensorParallel tensor_;
};

}  // namespace dslaunch
