#include "trainer/families/gpt2/gpt2_config.h"

#include "trainer/config/table_family.h"

namespace dslaunch {
namespace {

// The end of a text in GPT-2's vocabulary, by which transformers begins and ends texts.
constexpr int64_t kEndOfText = 50256;

KeyTable<Gpt2Config> Gpt2Keys() {
  using C = Gpt2Config;
  constexpr int64_t kMaxUnits = int64_t{1} << 20;
  return {IntKey("vocab_size", &C::vocab_size, {1, int64_t{1} << 30}, ""),
          IntKey("n_positions", &C::n_positions, {1, kMaxUnits}, "tokens of the longest sequence"),
          IntKey("n_embd", &C::n_embd, {1, kMaxUnits}, "width; a multiple of `n_head`"),
          IntKey("n_layer", &C::n_layer, {1, 1 << 12}, ""),
          IntKey("n_head", &C::n_head, {1, kMaxUnits}, ""),
          IntKey("n_inner", &C::n_inner, {1, kMaxUnits * 4},
                 "width of the feed-forward layers; default 4 times `n_embd`"),
          NumberKey("resid_pdrop", &C::resid_pdrop, {0, 1}, "dropout of residual branches"),
          NumberKey("embd_pdrop", &C::embd_pdrop, {0, 1}, "dropout of embeddings"),
          NumberKey("attn_pdrop", &C::attn_pdrop, {0, 1}, "dropout of attention weights"),
          NumberKey("layer_norm_epsilon", &C::layer_norm_epsilon, {0}, ""),
          NumberKey("initializer_range", &C::initializer_range, {0},
                    "standard deviation of initial weights")};
}

class Gpt2Models : public TableFamily<Gpt2Config> {
 public:
  Gpt2Models() : TableFamily("gpt2", Gpt2Keys()) {}

  ModelConfig Read(JsonObject& section) const override {
    ModelConfig config = TableFamily::Read(section);
    const auto& gpt2 = config.As<Gpt2Config>();
    if (gpt2.n_embd % gpt2.n_head != 0) {
      section.Fail("n_embd", "is " + std::to_string(gpt2.n_embd) + ", which the " +
                                 std::to_string(gpt2.n_head) +
                                 " heads (n_head) do not divide; change one of them");
    }
    return config;
  }

  // In the form that AutoModelForCausalLM of transformers reads.
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string& dtype) const override {
    const auto& gpt2 = config.As<Gpt2Config>();
    const nlohmann::json end_of_text =
        gpt2.vocab_size > kEndOfText ? nlohmann::json(kEndOfText) : nlohmann::json();
    nlohmann::json json = {{"model_type", type()},
                           {"architectures", {"GPT2LMHeadModel"}},
                           {"activation_function", "gelu_new"},
                           {"scale_attn_weights", true},
                           {"scale_attn_by_inverse_layer_idx", false},
                           {"reorder_and_upcast_attn", false},
                           {"tie_word_embeddings", true},
                           {"use_cache", true},
                           {"bos_token_id", end_of_text},
                           {"eos_token_id", end_of_text},
                           {"dtype", dtype}};
    json.update(TableFamily::ConfigJson(config, dtype));
    return json;
  }

  bool TakesTokens() const override { return true; }
  bool InTransformers() const override { return true; }

  // Files of GPT2Model have no prefix, old ones have masks, and most have the head, which is the
  // embedding.
  WeightNames Names() const override {
    return {.prefix = "transformer.",
            .copies = {{"lm_head.weight",
                        {"transformer.wte.weight",
                         "differs from the embedding; models whose head is not tied to the "
                         "embedding cannot be loaded"}}},
            .ignored_endings = {".attn.bias", ".attn.masked_bias"}};
  }

  // With another number of heads the same tensors would compute something else.
  void CheckConfigJson(const ModelConfig& config, JsonObject& config_json) const override {
    const auto& gpt2 = config.As<Gpt2Config>();
    const Gpt2Config saved = ReadGpt2ConfigJson(config_json);
    if (saved.n_head != gpt2.n_head) {
      config_json.Fail("n_head", "is " + std::to_string(saved.n_head) + "; model.n_head is " +
                                     std::to_string(gpt2.n_head));
    }
    if (saved.layer_norm_epsilon != gpt2.layer_norm_epsilon) {
      config_json.Fail("layer_norm_epsilon", "differs from the model's");
    }
  }
};

}  // namespace

const ModelFamily& Gpt2Family() {
  static const Gpt2Models kFamily;
  return kFamily;
}

Gpt2Config ReadGpt2ConfigJson(JsonObject& config_json) {
  if (!config_json.Word("model_type", {"gpt2"})) {
    config_json.Fail("model_type", "is missing; supported: gpt2");
  }
  config_json.Word("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  const auto refuse_unless = [&](const char* key, bool value) {
    if (config_json.Bool(key).value_or(value) != value) {
      config_json.Fail(
          key, value ? "is false; only true is supported" : "is true; only false is supported");
    }
  };
  refuse_unless("tie_word_embeddings", true);
  refuse_unless("scale_attn_weights", true);
  refuse_unless("scale_attn_by_inverse_layer_idx", false);
  refuse_unless("add_cross_attention", false);
  return ReadKeys(config_json, Gpt2Keys());
}

}  // namespace dslaunch
