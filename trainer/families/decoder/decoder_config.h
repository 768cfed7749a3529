// Defines the settings of dense decoders (llama, mistral, qwen2, qwen3), with the names of their
// config.json in Hugging Face's transformers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& DecoderFamily();

// The rotary embedding of rope_parameters; see rotary.h. Fields without effect for `type` have
// their defaults.
struct RotaryConfig {
  enum class Type { kDefault, kLinear, kLlama3, kYarn };
  Type type = Type::kDefault;
  double theta = 10000;
  double factor = 1;  // stretches wavelengths if above 1; no effect for kDefault
  // These have an effect for kLlama3.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // Number of tokens of the longest sequence in the first training, for kLlama3 and kYarn.
  int64_t original_max_position_embeddings = 0;
  // These have an effect for kYarn.
  double beta_fast = 32;
  double beta_slow = 1;
  // Factor of cosines and sines; nullopt: 0.1 ln(factor) + 1.
  std::optional<double> attention_factor;
};

struct DecoderConfig {
  enum class Type { kLlama, kMistral, kQwen2, kQwen3 };
  enum class Activation { kSilu };
  static const ModelFamily& Family() { return DecoderFamily(); }
  DataNeeds Needs() const {
    return {
        .vocabulary = vocab_size, .positions = max_position_embeddings, .end_token = end_token()};
  }
  // Returns eos_token_id of other_keys; nullopt if it is missing or lists several tokens.
  std::optional<int64_t> end_token() const;

  int64_t kv_heads() const { return num_key_value_heads.value_or(num_attention_heads); }
  int64_t width_of_head() const { return head_dim.value_or(hidden_size / num_attention_heads); }
  // Return whether the projections to queries, keys and values have biases, and whether the
  // projection back has a bias.
  bool qkv_bias() const { return attention_bias || model_type == Type::kQwen2; }
  bool output_bias() const { return attention_bias; }
  bool norms_heads() const { return model_type == Type::kQwen3; }
  // Returns the number of positions that each position of layer `index` attends to, including
  // itself; nullopt if it attends to all before it.
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
  std::optional<int64_t> pad_token_id;  // token whose embedding is 0 and gets no gradient
  RotaryConfig rotary;
  // for llama and qwen3
  bool attention_bias = false;
  // for llama
  bool mlp_bias = false;
  // for mistral, qwen2 and qwen3
  std::optional<int64_t> sliding_window;
  // For qwen2 and qwen3: true if layers have windows. These may differ between layers.
  bool use_sliding_window = false;
  int64_t max_window_layers = 28;        // number of layers at the beginning that have no window
  std::vector<std::string> layer_types;  // type of each layer; if empty, max_window_layers applies
  bool separates_documents = false;      // value of data.documents
  std::string other_keys = "{}";         // JSON object whose keys an export adds to config.json
};

}  // namespace dslaunch
