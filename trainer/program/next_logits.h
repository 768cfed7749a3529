// Computes the logits of the next token for several sequences, each of which grows by one token at
// a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trainer/nn/key_value_cache.h"

namespace dslaunch {

using TokenRows = std::vector<std::vector<int64_t>>;

// Maps tokens, int64 [B, T], to logits [B, T, vocabulary], or to the output of a CachingModel.
using TokenModel = std::function<at::Tensor(const at::Tensor& tokens)>;

class NextLogits {
 public:
  struct Options {
    int64_t n_positions = 1024;  // maximum number of tokens that the model accepts
    // The model that TokenModel calls; null if it cannot use a cache. Must outlive the NextLogits
    // object.
    CachingModel* caching = nullptr;
    int64_t capacity = 0;  // size of the cache: maximum number of tokens of a sequence
    c10::Device device = c10::kCPU;
  };
  NextLogits(TokenModel model, const Options& options);
  ~NextLogits();
  NextLogits(const NextLogits&) = delete;
  NextLogits& operator=(const NextLogits&) = delete;

  // Returns the logits of each row's next token, fp32 [rows, vocabulary] on the CPU, without
  // gradients. Each row has one token more than in the previous call. For a row longer than
  // n_positions, only the last n_positions tokens are used, and nothing is taken from the cache.
  // Precondition: no row is empty.
  at::Tensor After(const TokenRows& rows);
  // Keeps only the rows with these indices for the next call.
  void KeepRows(const std::vector<int64_t>& rows);

 private:
  at::Tensor Continued(const TokenRows& rows);
  at::Tensor Recomputed(const TokenRows& rows);

  const TokenModel model_;
  const Options options_;
  std::optional<KeyValueCache> cache_;
};

}  // namespace dslaunch
