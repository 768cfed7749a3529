// Defines the settings of dense decoders (llama, mistral, qwen2, qwen3), with the key names of
// their config.json in Hugging Face's transformers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& DecoderFamily();

// The settings of the rotary embedding in rope_parameters (rotary.h). Members without effect for
// `type` have their defaults.
struct RotaryConfig {
  enum class Type { kDefault, kLinear, kLlama3, kYarn };
  Type type = Type::kDefault;
  double theta = 10000;
  double factor = 1;  // factor of wavelengths if above 1; no effect for kDefault
  // Members that have an effect for kLlama3 only.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // Length in tokens of the longest sequence in pretraining, for kLlama3 and kYarn.
  int64_t original_max_position_embeddings = 0;
  // Members that have an effect for kYarn only.
  double beta_fast = 32;
  double beta_slow = 1;
  // Factor of cosines and sines for kYarn; 0.1 ln(factor) + 1 if nullopt.
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
  // Returns the value of eos_token_id in other_keys; nullopt if the key is missing or lists several
  // tokens.
  std::optional<int64_t> end_token() const;

  int64_t kv_heads() const { return num_key_value_heads.value_or(num_attention_heads); }
  int64_t width_of_head() const { return head_dim.value_or(hidden_size / num_attention_heads); }
  // Returns whether the projections of queries, keys and values have biases.
  bool qkv_bias() const { return attention_bias || model_type == Type::kQwen2; }
  // Returns whether the output projection of attention has a bias.
  bool output_bias() const { return attention_bias; }
  bool norms_heads() const { return model_type == Type::kQwen3; }
  // Returns the number of positions that each position of layer `index` attends to, including the
  // position itself; nullopt if it attends to all earlier positions.
  std::optional<int64_t> WindowOf(int64_t index) const;

  Type model_type = Type::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  std::optional<int64_t> num_key_value_heads;  // num_attention_heads if nullopt
  std::optional<int64_t> head_dim;             // hidden_size / num_attention_heads if nullopt
  int64_t max_position_embeddings = 0;
  Activation hidden_act = Activation::kSilu;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  double attention_dropout = 0;
  bool tie_word_embeddings = false;
  std::optional<int64_t> pad_token_id;  // token whose embedding is 0 and is not trained
  RotaryConfig rotary;
  // True if the projections of attention have biases (llama and qwen3).
  bool attention_bias = false;
  // True if the linear layers of the MLP have biases (llama).
  bool mlp_bias = false;
  // Window size in tokens (mistral, qwen2 and qwen3).
  std::optional<int64_t> sliding_window;
  // True if some layers have windows, which max_window_layers or layer_types selects (qwen2 and
  // qwen3).
  bool use_sliding_window = false;
  int64_t max_window_layers = 28;        // number of layers without a window at the beginning
  std::vector<std::string> layer_types;  // type of each layer; max_window_layers applies if empty
  bool separates_documents = false;      // true if data.documents requests separate documents
  std::string other_keys = "{}";         // JSON object of keys that an export adds to config.json
};

}  // namespace dslaunch
