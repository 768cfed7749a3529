// Generates texts from a language model, token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/program/next_logits.h"

namespace dslaunch {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // number of most likely tokens to sample from; 0: all
  // Total probability of the most likely tokens to sample from, which are as few as possible
  // (Holtzman et al. 2020, section 3.1); 1: all.
  double top_p = 1.0;
  std::vector<int64_t> end_tokens = {};  // a text ends after any of these
  // Returns whether a text ends with `tokens`, of which the first `given` are from the prompt. If
  // empty, texts end at end tokens only.
  std::function<bool(const std::vector<int64_t>& tokens, size_t given)> ends = {};
};

// The tokens that may come next, and their probabilities.
struct NextTokens {
  at::Tensor probabilities;  // fp32 [n]
  at::Tensor ids;            // int64 [n]; undefined: 0, 1, ... n - 1
};
// Returns the next tokens for `logits`, fp32 [vocabulary]. Temperature is applied before top_k, and
// top_k before top_p. Precondition: the temperature is above 0.
NextTokens NextTokensOf(const at::Tensor& logits, const GenerateOptions& options);

struct Prompt {
  std::vector<int64_t> tokens;
  uint64_t seed = 0;  // the same seed, weights and prompt give the same tokens
};

struct Generated {
  std::vector<int64_t> tokens;  // tokens after the prompt, including the end token
  bool ended = false;           // whether an end token or `ends` has ended the text
};

// Continues all prompts together. The continuation of a prompt does not depend on the others, apart
// from rounding. Throws kBadInput if a prompt is empty, and if logits are not finite.
std::vector<Generated> Generate(NextLogits& next_logits, const std::vector<Prompt>& prompts,
                                const GenerateOptions& options);

}  // namespace dslaunch
