// Defines the settings of GPT-2, with the key names and defaults of Hugging Face's GPT2Config.
#pragma once

#include <optional>

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& Gpt2Family();

struct Gpt2Config {
  static const ModelFamily& Family() { return Gpt2Family(); }
  DataNeeds Needs() const {
    return {.vocabulary = vocab_size, .positions = n_positions, .end_token = end_token()};
  }
  // Returns the token with which transformers begins and ends texts in GPT-2's own vocabulary;
  // nullopt if the vocabulary is smaller.
  std::optional<int64_t> end_token() const {
    constexpr int64_t kEndOfText = 50256;
    return vocab_size > kEndOfText ? std::optional(kEndOfText) : std::nullopt;
  }

  int64_t inner() const { return n_inner.value_or(4 * n_embd); }

  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  std::optional<int64_t> n_inner;  // 4 * n_embd if nullopt
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool separates_documents = false;  // true if data.documents requests separate documents
};

}  // namespace dslaunch
