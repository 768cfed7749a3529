// Computes attention and positions within documents, for samples that consist of several documents.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace dslaunch {

// The documents of a batch. A model uses this object from Divide(), with which the forward pass of
// a batch begins, to the end of the batch's backward pass. Not thread-safe.
class Documents {
 public:
  // Finds the documents of a batch of tokens, int64 [B, T], and returns the tokens without marks.
  // Each document except the first of a sample begins with a marked token
  // (trainer/base/document_mark.h). The host does not read tokens on a GPU, so it does not wait.
  at::Tensor Divide(const at::Tensor& tokens);

  // Returns whether a sample of the batch may have several documents. If false, use the attention
  // and the positions of a batch without documents.
  bool several() const { return positions_.defined(); }

  // Returns, for each token, the number of preceding tokens in its document, int64 [B, T].
  // Precondition: several().
  const at::Tensor& positions() const { return positions_; }

  // Returns causal attention within documents, with the shape of `query`, [B, T, heads, head_dim].
  // With a `window` a token attends to that many tokens, including itself. `key` and `value` may
  // have fewer heads, whose number must divide the number of query heads. On the CPU each document
  // is computed separately; on other devices all layers share a mask, [B, 1, T, T]. Precondition:
  // several().
  at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    double dropout, std::optional<int64_t> window = std::nullopt);

 private:
  at::Tensor AttendEach(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        double dropout, std::optional<int64_t> window);
  const at::Tensor& Band(int64_t length, std::optional<int64_t> window, const at::Tensor& like);
  const at::Tensor& Mask(std::optional<int64_t> window, at::ScalarType type);

  at::Tensor positions_;  // results of positions(); undefined if each sample is one document
  at::Tensor starts_;  // position in the sample at which each token's document starts, int64 [B, T]
  std::vector<int64_t> lengths_;  // number of tokens in each document; set only on the CPU
  // Masks within a document, bool [T, T], by window; 0 if no window.
  std::map<int64_t, at::Tensor> bands_;
  // Additive masks of a whole batch, [B, 1, T, T] in the type of the last queries, by window; 0 if
  // no window.
  std::map<int64_t, at::Tensor> masks_;
};

}  // namespace dslaunch
