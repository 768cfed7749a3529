// Settings of dense decoders (llama, mistral, qwen2, qwen3), with the names of their config.json in
// Hugging Face's transformers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& DecoderFamily();

// rope_parameters: the rotary embedding, see rotary.h. A field without effect for its type has its
// default.
struct RotaryConfig {
  enum class Type { kDefault, kLinear, kLlama3, kYarn };
  Type type = Type::kDefault;
  double theta = 10000;
  double factor = 1;  // above 1: longer wavelengths; no effect for kDefault
  // kLlama3
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // kLlama3 and kYarn: tokens of the longest sequence of the first training
  int64_t original_max_position_embeddings = 0;
  // kYarn
  double beta_fast = 32;
  double beta_slow = 1;
  std::optional<double> attention_factor;  // nullopt: 0.1 ln(factor) + 1
};

struct DecoderConfig {
  enum class Type { kLlama, kMistral, kQwen2, kQwen3 };
  enum class Activation { kSilu };
  static const ModelFamily& Family() { return DecoderFamily(); }
  DataNeeds Needs() const {
    return {
        .vocabulary = vocab_size, .positions = max_position_embeddings, .end_token = end_token()};
  }
  // eos_token_id of other_keys, unless there are several.
  std::optional<int64_t> end_token() const;

  int64_t kv_heads() const { return num_key_value_heads.value_or(num_attention_heads); }
  int64_t width_of_head() const { return head_dim.value_or(hidden_size / num_attention_heads); }
  // Whether the projections to queries, keys and values, and the projection back have biases.
  bool qkv_bias() const { return attention_bias || model_type == Type::kQwen2; }
  bool output_bias() const { return attention_bias; }
  bool norms_heads() const { return model_type == Type::kQwen3; }
  // The number of positions, its own included, that a position of layer `index` sees; nullopt: all.
  std::optional<int64_t> WindowOf(int64_t index) const;

  Type model_type = Type::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  std::optional<int64_t> num_key_value_heads;  // nullopt: num_attention_heads
  std::optional<int64_t> head_dim;             // nullopt: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;
  Activation hidden_act = Activation::kSilu;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  double attention_dropout = 0;
  bool tie_word_embeddings = false;
  std::optional<int64_t> pad_token_id;  // its embedding is 0 at first and gets no gradient
  RotaryConfig rotary;
  // llama and qwen3
  bool attention_bias = false;
  // llama
  bool mlp_bias = false;
  // mistral, qwen2 and qwen3
  std::optional<int64_t> sliding_window;
  // qwen2 and qwen3, whose layers may differ in their windows
  bool use_sliding_window = false;
  int64_t max_window_layers = 28;        // number of first layers without window
  std::vector<std::string> layer_types;  // empty: by max_window_layers
  bool separates_documents = false;      // data.documents
  std::string other_keys = "{}";         // JSON object that an export adds to config.json
};

}  // namespace dslaunch
