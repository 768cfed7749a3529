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
  int64_t top_k = 0;           // sample from this many likeliest tokens; 0: from all
  uint64_t seed = 0;           // the same seed, weights and prompt give the same tokens
  int64_t n_positions = 1024;  // at most this many of the last tokens are the model's input
};

// int64 [1, T] -> logits [1, T, vocabulary]
using TokenModel = std::function<at::Tensor(const at::Tensor& tokens)>;

// Returns the tokens after `prompt`, which must not be empty (kBadInput). Runs without gradients,
// and with dropout if `model` applies it. Throws kBadInput if logits are not finite.
std::vector<int64_t> Generate(const TokenModel& model, std::vector<int64_t> prompt,
                              const GenerateOptions& options);

// Does the same in the model's evaluation mode and restores its mode.
std::vector<int64_t> Generate(Model& model, std::vector<int64_t> prompt,
                              const GenerateOptions& options);

}  // namespace dslaunch
