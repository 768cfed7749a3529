// Texts from a language model, token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/program/next_logits.h"

namespace dslaunch {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 1.0;  // 0: always the likeliest token
  int64_t top_k = 0;         // sample from this many likeliest tokens; 0: from all
  // Sample from the fewest likeliest tokens that together have this probability (Holtzman et al.
  // 2020, section 3.1); 1: from all.
  double top_p = 1.0;
  std::vector<int64_t> end_tokens = {};  // a text ends after any of these
  // Whether a text ends with `tokens`, of which the first `given` are the prompt's; empty: never.
  std::function<bool(const std::vector<int64_t>& tokens, size_t given)> ends = {};
};

// The tokens that may follow, and their probabilities.
struct NextTokens {
  at::Tensor probabilities;  // fp32 [n]
  at::Tensor ids;            // int64 [n]; undefined: 0, 1, ... n - 1
};
// Returns them for `logits`, fp32 [vocabulary]. Temperature is applied before top_k, and top_k
// before top_p. Precondition: the temperature is above 0.
NextTokens NextTokensOf(const at::Tensor& logits, const GenerateOptions& options);

struct Prompt {
  std::vector<int64_t> tokens;
  uint64_t seed = 0;  // the same seed, weights and prompt give the same tokens
};

struct Generated {
  std::vector<int64_t> tokens;  // after the prompt; with the end token
  bool ended = false;           // whether an end token or `ends` ended it
};

// Continues each prompt, all together. What a prompt gets does not depend on the others, up to the
// rounding of sums. Throws kBadInput if a prompt is empty, and if logits are not finite.
std::vector<Generated> Generate(NextLogits& next_logits, const std::vector<Prompt>& prompts,
                                const GenerateOptions& options);

}  // namespace dslaunch
