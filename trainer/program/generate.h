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
  double temperature = 1.0;  // 0: always choose the most likely token
  int64_t top_k = 0;         // number of the most likely tokens to sample from; 0: all tokens
  // Samples from the fewest most likely tokens whose total probability is at least top_p (Holtzman
  // et al. 2020, section 3.1); 1: all tokens.
  double top_p = 1.0;
  std::vector<int64_t> end_tokens = {};  // tokens each of which ends a text
  // Returns whether `tokens`, of which the first `given` are the prompt, end the text. If empty,
  // only end tokens end a text.
  std::function<bool(const std::vector<int64_t>& tokens, size_t given)> ends = {};
};

// The tokens that may come next, with their probabilities.
struct NextTokens {
  at::Tensor probabilities;  // probabilities in fp32, [n]
  at::Tensor ids;            // int64 [n]; undefined if the tokens are 0, 1, ... n - 1
};
// Returns the possible next tokens for `logits`, fp32 [vocabulary]. Temperature is applied before
// top_k, and top_k before top_p. Precondition: the temperature is above 0.
NextTokens NextTokensOf(const at::Tensor& logits, const GenerateOptions& options);

struct Prompt {
  std::vector<int64_t> tokens;
  uint64_t seed = 0;  // the same seed, weights and prompt give the same tokens
};

struct Generated {
  std::vector<int64_t> tokens;  // tokens after the prompt, including an end token
  bool ended = false;           // true if an end token or `ends` ended the text
};

// Continues all prompts together. Apart from rounding, the continuation of a prompt does not depend
// on the other prompts. Throws kBadInput if a prompt is empty or if logits are not finite.
std::vector<Generated> Generate(NextLogits& next_logits, const std::vector<Prompt>& prompts,
                                const GenerateOptions& options);

}  // namespace dslaunch
