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

// Maps tokens, int64 [B, T], to logits [B, T, vocabulary], or to the output of a CachingModel.
using TokenModel = std::function<at::Tensor(const at::Tensor& tokens)>;

class NextLogits {
 public:
  struct Options {
    int64_t n_positions = 1024;  // largest number of tokens that the model accepts
    // The model that TokenModel calls, if it can use a cache. It must outlive this object.
    CachingModel* caching = nullptr;
    int64_t capacity = 0;  // largest number of tokens of a sequence, for the size of the cache
    c10::Device device = c10::kCPU;
  };
  NextLogits(TokenModel model, const Options& options);
  ~NextLogits();
  NextLogits(const NextLogits&) = delete;
  NextLogits& operator=(const NextLogits&) = delete;

  // Returns the next logits of each row, fp32 [rows, vocabulary] on the CPU, without gradients.
  // Each row has one token more than in the last call. For a row longer than n_positions, only the
  // last n_positions tokens count, and everything is computed again. Precondition: no row is empty.
  at::Tensor After(const TokenRows& rows);
  // Keeps only these rows, by index, for the next call.
  void KeepRows(const std::vector<int64_t>& rows);

 private:
  at::Tensor Continued(const TokenRows& rows);
  at::Tensor Recomputed(const TokenRows& rows);

  const TokenModel model_;
  const Options options_;
  std::optional<KeyValueCache> cache_;
};

}  // namespace dslaunch
