// Text from a language model, token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "dslaunch/model.h"

namespace dslaunch {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 1.0;    // 0: always the likeliest token
  int64_t top_k = 0;           // choose among this many of the likeliest; 0: among all
  uint64_t seed = 0;           // the same seed, weights and prompt give the same tokens
  int64_t n_positions = 1024;  // the model is shown at most this many of the last tokens
};

// int64 [1, T] -> logits [1, T, vocabulary]
using TokenModel = std::function<at::Tensor(const at::Tensor& tokens)>;

// The tokens that follow `prompt`, which has at least one (kBadInput). Runs without gradients;
// whether dropout is on is the model's matter. Throws kBadInput where logits are not finite.
std::vector<int64_t> Generate(const TokenModel& model, std::vector<int64_t> prompt,
                              const GenerateOptions& options);

// The same of a model as it stands, in evaluation mode; leaves its mode as it was.
std::vector<int64_t> Generate(Model& model, std::vector<int64_t> prompt,
                              const GenerateOptions& options);

}  // namespace dslaunch
