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
  // Temperature of sampling; at 0 the most likely token is always chosen.
  double temperature = 1.0;
  // Number of the most likely tokens to sample from; 0 stands for all tokens.
  int64_t top_k = 0;
  // Tokens are sampled from the smallest set of most likely tokens whose total probability is at
  // least top_p (Holtzman et al. 2020, section 3.1); 1 stands for all tokens.
  double top_p = 1.0;
  std::vector<int64_t> end_tokens = {};  // tokens after each of which a text ends
  // Returns whether the text ends after `tokens`, of which the first `given` are the prompt. If the
  // function is empty, only end tokens end a text.
  std::function<bool(const std::vector<int64_t>& tokens, size_t given)> ends = {};
};

// The candidates for the next token, with their probabilities.
struct NextTokens {
  at::Tensor probabilities;  // probabilities in fp32, [n]
  at::Tensor ids;            // int64 [n]; undefined if the tokens are 0, 1, ... n - 1
};
// Returns the candidates for the next token for `logits`, fp32 [vocabulary]. Temperature is applied
// before top_k, and top_k before top_p. Precondition: the temperature is above 0.
NextTokens NextTokensOf(const at::Tensor& logits, const GenerateOptions& options);

struct Prompt {
  std::vector<int64_t> tokens;
  uint64_t seed = 0;  // seed of sampling; the same seed, weights and prompt give the same tokens
};

struct Generated {
  std::vector<int64_t> tokens;  // tokens after the prompt, including an end token
  bool ended = false;           // true if an end token or `ends` ended the text
};

// Generates continuations of all prompts together. Apart from rounding, a continuation does not
// depend on the other prompts. Throws kBadInput if a prompt is empty, or if a logit is NaN or
// infinite.
std::vector<Generated> Generate(NextLogits& next_logits, const std::vector<Prompt>& prompts,
                                const GenerateOptions& options);

}  // namespace dslaunch
