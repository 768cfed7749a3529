// Computes the next logits of several sequences, each of which grows by one token at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trainer/nn/key_value_cache.h"

namespace dslaunch {

using TokenRows = std::vector<std::vector<int64_t>>;

// Maps int64 [B, T] to logits [B, T, vocabulary], or to the output of a CachingModel.
using TokenModel = std::function<at::Tensor(const at::Tensor& tokens)>;

class NextLogits {
 public:
  struct Options {
    int64_t n_positions = 1024;  // largest number of tokens for the model
    // The model behind TokenModel, if it can use a cache; must outlive this.
    CachingModel* caching = nullptr;
    int64_t capacity = 0;  // largest number of tokens of a sequence, for the cache
    c10::Device device = c10::kCPU;
  };
  NextLogits(TokenModel model, const Options& options);
  ~NextLogits();
  NextLogits(const NextLogits&) = delete;
  NextLogits& operator=(const NextLogits&) = delete;

  // Returns fp32 [rows, vocabulary] on the CPU, without gradients. Each row has one token more than
  // in the last call. A row that is longer than n_positions is continued from its last n_positions
  // tokens, for which everything is computed again.
  // Precondition: no row is empty.
  at::Tensor After(const TokenRows& rows);
  // Keeps only these rows for the next call.
  void KeepRows(const std::vector<int64_t>& rows);

 private:
  at::Tensor Continued(const TokenRows& rows);
  at::Tensor Recomputed(const TokenRows& rows);

  const TokenModel model_;
  const Options options_;
  std::optional<KeyValueCache> cache_;
};

}  // namespace dslaunch
