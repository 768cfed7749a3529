#include "trainer/families/gpt2/gpt2_config.h"

#include "trainer/families/table_family.h"

namespace dslaunch {
namespace {

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

  // Returns config.json in the format that AutoModelForCausalLM of transformers reads.
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string& dtype) const override {
    const auto& gpt2 = config.As<Gpt2Config>();
    const nlohmann::json end_of_text =
        gpt2.end_token() ? nlohmann::json(*gpt2.end_token()) : nlohmann::json();
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
    json.update(nlohmann::json(ShowKeys(Gpt2Keys(), gpt2)));
    return json;
  }

  bool TakesTokens() const override { return true; }
  std::optional<WeightLayout> AdaptedLayers() const override { return WeightLayout::kInOut; }

  std::string TensorParallelRefusal(const ModelConfig& config, int64_t parts) const override {
    const auto& gpt2 = config.As<Gpt2Config>();
    return IndivisibleKey({{"model.n_head", gpt2.n_head}, {"model.n_inner", gpt2.inner()}}, parts);
  }

  std::vector<std::string> ModelTypes() const override { return {type()}; }

  // Files of GPT2Model have names without the prefix, so such names are accepted. Old files also
  // have masks, and most files have the head, whose weight equals the embedding's.
  WeightNames Names() const override {
    return {.prefix = "transformer.",
            .copies = {{"lm_head.weight",
                        {"transformer.wte.weight",
                         "differs from the embedding; models whose head is not tied to the "
                         "embedding cannot be loaded"}}},
            .ignored_endings = {".attn.bias", ".attn.masked_bias"}};
  }

  ModelConfig ReadConfigJson(JsonObject& config_json) const override {
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
    return Read(config_json);
  }
  std::optional<ModelConfig> SeparateDocuments(const ModelConfig& config) const override {
    auto separating = config.As<Gpt2Config>();
    separating.separates_documents = true;
    return separating;
  }
  // Returns the keys that the shapes of tensors do not determine, because the same tensors would
  // compute something else with other values of these keys.
  std::vector<const char*> KeysNotInShapes() const override {
    return {"n_head", "layer_norm_epsilon"};
  }
};

}  // namespace

const ModelFamily& Gpt2Family() {
  static const Gpt2Models kFamily;
  return kFamily;
}

}  // namespace dslaunch
