// Computes attention and positions that end with the documents of which samples consist.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace dslaunch {

// The documents of one batch at a time. A model uses this between the forward pass of a batch,
// which begins with Divide(), and the end of its backward pass. One thread at a time.
class Documents {
 public:
  // Takes a batch of tokens, int64 [B, T], in which each document but the first of a sample begins
  // with a marked token (trainer/base/document_mark.h). Returns the tokens without marks. Tokens on
  // a GPU are not read, so the host does not wait.
  at::Tensor Divide(const at::Tensor& tokens);

  // Whether a sample of the batch may have several documents. Otherwise attention and positions are
  // those of a batch without documents.
  bool several() const { return positions_.defined(); }

  // Returns for each token how many tokens of its document are before it, int64 [B, T].
  // Precondition: several().
  const at::Tensor& positions() const { return positions_; }

  // Returns causal attention, [B, T, heads, head_dim] as `query`. With a `window` a token sees that
  // many tokens, including itself. The heads of `key` and `value` may be fewer, a divisor. On the
  // CPU each document is computed alone; elsewhere there is a mask of bool [B, 1, T, T].
  // Precondition: several().
  at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    double dropout, std::optional<int64_t> window = std::nullopt);

 private:
  at::Tensor AttendEach(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        double dropout, std::optional<int64_t> window);
  const at::Tensor& Band(int64_t length, std::optional<int64_t> window, const at::Tensor& like);
  const at::Tensor& Mask(std::optional<int64_t> window);

  at::Tensor positions_;  // undefined: each sample is one document
  at::Tensor starts_;  // int64 [B, T], position in the sample at which each token's document begins
  std::vector<int64_t> lengths_;         // number of tokens of each document; on the CPU only
  std::map<int64_t, at::Tensor> bands_;  // bool masks [T, T], keyed by window; 0: no window
  std::map<int64_t, at::Tensor> masks_;  // bool masks [B, 1, T, T], keyed by window
};

}  // namespace dslaunch
