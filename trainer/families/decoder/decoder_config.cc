#include "trainer/families/decoder/decoder_config.h"

#include <algorithm>
#include <array>

#include "trainer/families/decoder/rotary_config.h"
#include "trainer/families/table_family.h"

namespace dslaunch {
namespace {

using Type = DecoderConfig::Type;

constexpr char kFullAttention[] = "full_attention";
constexpr char kSlidingAttention[] = "sliding_attention";

// Names of the types in config.json, indexed by DecoderConfig::Type.
constexpr std::array kModelTypes = {"llama", "mistral", "qwen2", "qwen3"};
constexpr std::array kArchitectures = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                                       "Qwen3ForCausalLM"};

KeyRow<DecoderConfig> SizeKey(const char* key, int64_t DecoderConfig::*member, int64_t max,
                              std::string meaning) {
  return Required(IntKey(key, member, {1, max}, "required; " + std::move(meaning)),
                  "is missing; the model's config.json has it");
}

const KeyTable<DecoderConfig>& CommonKeys() {
  using C = DecoderConfig;
  constexpr int64_t kMaxUnits = int64_t{1} << 20;
  static const KeyTable<C> kKeys = {
      Required(WordKey("model_type", &C::model_type, {kModelTypes.begin(), kModelTypes.end()},
                       "required; which of the architectures that differ in their biases, "
                       "norms and windows"),
               "is missing; give llama, mistral, qwen2 or qwen3"),
      SizeKey("vocab_size", &C::vocab_size, int64_t{1} << 30, "number of tokens"),
      SizeKey("hidden_size", &C::hidden_size, kMaxUnits, "width"),
      SizeKey("intermediate_size", &C::intermediate_size, kMaxUnits * 4,
              "width of the feed-forward layers"),
      SizeKey("num_hidden_layers", &C::num_hidden_layers, 1 << 12, "number of blocks"),
      SizeKey("num_attention_heads", &C::num_attention_heads, kMaxUnits, "heads of the queries"),
      IntKey("num_key_value_heads", &C::num_key_value_heads, {1, kMaxUnits},
             "heads of keys and values, a divisor of `num_attention_heads`; default: as many"),
      IntKey("head_dim", &C::head_dim, {2, 1 << 16},
             "width of a head, even; default: `hidden_size` / `num_attention_heads`"),
      SizeKey("max_position_embeddings", &C::max_position_embeddings, int64_t{1} << 24,
              "tokens of the longest sequence"),
      WordKey("hidden_act", &C::hidden_act, {"silu"}, ""),
      NumberKey("rms_norm_eps", &C::rms_norm_eps, {0, 1}, ""),
      NumberKey("initializer_range", &C::initializer_range, {0, 1},
                "standard deviation of initial weights"),
      NumberKey("attention_dropout", &C::attention_dropout, {0, 1}, "dropout of attention weights"),
      BoolKey("tie_word_embeddings", &C::tie_word_embeddings, "whether the head is the embedding"),
      IntKey("pad_token_id", &C::pad_token_id, {-1, int64_t{1} << 30},
             "token whose embedding is not trained; default: none"),
      ObjectTextKey("other_keys", &C::other_keys,
                    "keys that an export adds to config.json; `from` puts those here that have "
                    "no effect on training")};
  return kKeys;
}

struct KeysOfTypes {
  std::vector<Type> types;
  KeyTable<DecoderConfig> keys;
};

// Returns the keys that only some of the model types have.
const std::vector<KeysOfTypes>& SpecialKeys() {
  using C = DecoderConfig;
  static const std::vector<KeysOfTypes> kKeys = {
      {{Type::kLlama, Type::kQwen3},
       {BoolKey("attention_bias", &C::attention_bias,
                "llama, qwen3: whether the projections of the attention have biases")}},
      {{Type::kLlama},
       {BoolKey("mlp_bias", &C::mlp_bias, "llama: whether the feed-forward layers have biases")}},
      {{Type::kMistral, Type::kQwen2, Type::kQwen3},
       {IntKey("sliding_window", &C::sliding_window, {1},
               "mistral, qwen2, qwen3: positions that a position sees, its own included; default: "
               "all before it")}},
      {{Type::kQwen2, Type::kQwen3},
       {BoolKey("use_sliding_window", &C::use_sliding_window,
                "qwen2, qwen3: whether `sliding_window` applies"),
        IntKey("max_window_layers", &C::max_window_layers, {0},
               "qwen2, qwen3: number of first blocks that see all positions"),
        TextsKey("layer_types", &C::layer_types,
                 "qwen2, qwen3: `full_attention` or `sliding_attention` for each block; default: "
                 "by `max_window_layers`")}}};
  return kKeys;
}

bool Has(const KeysOfTypes& keys, Type type) {
  return std::ranges::find(keys.types, type) != keys.types.end();
}

std::string NameOf(Type type) { return kModelTypes.at(static_cast<size_t>(type)); }

KeyTable<DecoderConfig> TableOf(Type type) {
  KeyTable<DecoderConfig> keys = CommonKeys();
  for (const KeysOfTypes& special : SpecialKeys()) {
    if (Has(special, type)) keys.insert(keys.end(), special.keys.begin(), special.keys.end());
  }
  return keys;
}

// Returns the settings of the model's type, without the rotary embedding.
nlohmann::ordered_json Shown(const DecoderConfig& config) {
  nlohmann::ordered_json keys = ShowKeys(TableOf(config.model_type), config);
  if (config.layer_types.empty()) keys.erase("layer_types");
  return keys;
}

std::string Number(int64_t number) { return std::to_string(number); }

void CheckHeads(const JsonObject& section, const DecoderConfig& config) {
  const int64_t heads = config.num_attention_heads;
  if (!config.head_dim && config.hidden_size % heads != 0) {
    section.Fail("hidden_size", "is " + Number(config.hidden_size) + ", which the " +
                                    Number(heads) +
                                    " heads (num_attention_heads) do not divide; change one of "
                                    "them or give head_dim");
  }
  if (heads % config.kv_heads() != 0) {
    section.Fail("num_key_value_heads", "is " + Number(config.kv_heads()) +
                                            ", which does not divide the " + Number(heads) +
                                            " heads (num_attention_heads); change one of them");
  }
  if (config.width_of_head() % 2 != 0) {
    section.Fail("head_dim", "is " + Number(config.width_of_head()) +
                                 "; it must be even, because the rotary embedding rotates pairs");
  }
}

void CheckWindows(const JsonObject& section, const DecoderConfig& config) {
  const auto is_known = [](const std::string& type) {
    return type == kFullAttention || type == kSlidingAttention;
  };
  if (!std::ranges::all_of(config.layer_types, is_known)) {
    section.Fail("layer_types",
                 "has another value than full_attention and sliding_attention, which are "
                 "supported");
  }
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  if (!config.layer_types.empty() && config.layer_types.size() != layers) {
    section.Fail("layer_types", "has " + std::to_string(config.layer_types.size()) +
                                    " values, but num_hidden_layers is " + std::to_string(layers));
  }
  const bool slides =
      config.use_sliding_window || std::ranges::count(config.layer_types, kSlidingAttention) > 0;
  if (slides && (!config.sliding_window || !config.use_sliding_window)) {
    section.Fail(config.use_sliding_window ? "sliding_window" : "use_sliding_window",
                 "is missing; layers with a sliding window need use_sliding_window: true and "
                 "sliding_window");
  }
}

class DecoderModels : public TableFamily<DecoderConfig> {
 public:
  DecoderModels() : TableFamily("decoder", CommonKeys()) {}

  ModelConfig Read(JsonObject& section) const override {
    auto config = ReadKeys(section, CommonKeys());
    for (const KeysOfTypes& special : SpecialKeys()) {
      std::string types;
      for (const Type type : special.types) types += (types.empty() ? "" : ", ") + NameOf(type);
      ReadKeysIf(Has(special, config.model_type), section, special.keys, config,
                 "is a setting of model_type " + types + "; remove it");
    }
    if (config.pad_token_id && *config.pad_token_id >= config.vocab_size) {
      section.Fail("pad_token_id", "is " + Number(*config.pad_token_id) +
                                       ", which is not below vocab_size, " +
                                       Number(config.vocab_size));
    }
    CheckHeads(section, config);
    CheckWindows(section, config);
    config.rotary = ReadRotary(section, config.max_position_embeddings);
    return config;
  }

  nlohmann::ordered_json Section(const ModelConfig& config) const override {
    const auto& decoder = config.As<DecoderConfig>();
    nlohmann::ordered_json section = Shown(decoder);
    section["type"] = type();
    section[kRotaryKey] = ShowRotary(decoder.rotary);
    return section;
  }

  // Returns config.json in the format of transformers. Other programs read only the keys of version
  // 4 or of version 5, so the rotary embedding and the dtype have the keys of both.
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string& dtype) const override {
    const auto& decoder = config.As<DecoderConfig>();
    nlohmann::json json = nlohmann::json::parse(decoder.other_keys);
    const nlohmann::json own = Shown(decoder);
    for (const auto& [key, value] : own.items()) {
      if (key != "other_keys" && (!value.is_null() || key == "sliding_window")) json[key] = value;
    }
    json["architectures"] = {kArchitectures.at(static_cast<size_t>(decoder.model_type))};
    json["num_key_value_heads"] = decoder.kv_heads();
    json["head_dim"] = decoder.width_of_head();
    json["dtype"] = json["torch_dtype"] = dtype;
    json[kRotaryKey] = ShowRotary(decoder.rotary);
    json.update(ShowOlderRotary(decoder.rotary));
    return json;
  }

  bool TakesTokens() const override { return true; }
  std::optional<WeightLayout> AdaptedLayers() const override { return WeightLayout::kOutIn; }

  std::string TensorParallelRefusal(const ModelConfig& config, int64_t parts) const override {
    const auto& decoder = config.As<DecoderConfig>();
    const int64_t kv_heads = decoder.kv_heads();
    if (kv_heads % parts != 0 && parts % kv_heads != 0) {
      return "model.num_key_value_heads is " + Number(kv_heads) +
             ", and neither it nor tensor_parallel.autotp_size, " + Number(parts) +
             ", is a multiple of the other; change one of them";
    }
    return IndivisibleKey({{"model.num_attention_heads", decoder.num_attention_heads},
                           {"model.intermediate_size", decoder.intermediate_size}},
                          parts);
  }

  std::vector<std::string> ModelTypes() const override {
    return {kModelTypes.begin(), kModelTypes.end()};
  }

  // Files of the model without its head have names without the prefix, so such names are accepted.
  // Old files also have a table of frequencies, and files of tied models may have the head.
  WeightNames Names() const override {
    return {.prefix = "model.",
            .copies = {{"lm_head.weight",
                        {"model.embed_tokens.weight",
                         "differs from the embedding, but model.tie_word_embeddings is true"}}},
            .ignored_endings = {".rotary_emb.inv_freq"}};
  }

  ModelConfig ReadConfigJson(JsonObject& config_json) const override {
    RefuseVariants(config_json);
    DecoderConfig typed;
    ReadKeys(config_json, {CommonKeys().front()}, typed);
    std::set<std::string> known = KeysOf(TableOf(typed.model_type));
    known.insert(kRotaryKeys.begin(), kRotaryKeys.end());
    nlohmann::json section = nlohmann::json::object(), other = nlohmann::json::object();
    for (const auto& [key, value] : config_json.value().items()) {
      (known.contains(key) && key != "other_keys" ? section : other)[key] = value;
    }
    section["other_keys"] = std::move(other);
    RequireKeys(config_json, typed.model_type);
    JsonObject keys = config_json.Over(section);
    return Read(keys);
  }

  std::vector<const char*> KeysNotInShapes() const override {
    return {"model_type",         "num_attention_heads", "num_key_value_heads", "head_dim",
            "rms_norm_eps",       "rope_parameters",     "tie_word_embeddings", "sliding_window",
            "use_sliding_window", "max_window_layers",   "layer_types"};
  }

  std::optional<ModelConfig> SeparateDocuments(const ModelConfig& config) const override {
    auto separating = config.As<DecoderConfig>();
    separating.separates_documents = true;
    return separating;
  }

  nlohmann::json LeastSection() const override {
    return {{"model_type", "llama"},
            {"vocab_size", 32000},
            {"hidden_size", 4096},
            {"intermediate_size", 11008},
            {"num_hidden_layers", 32},
            {"num_attention_heads", 32},
            {"max_position_embeddings", 2048},
            {"rope_parameters", {{"rope_type", "default"}}}};
  }

 private:
  static void RefuseVariants(JsonObject& config_json) {
    const nlohmann::json& json = config_json.value();
    const auto refuse = [&](const char* key, const char* why) {
      if (json.contains(key) && !json[key].is_null()) config_json.Fail(key, why);
    };
    refuse("quantization_config",
           "is given: quantized weights cannot be trained; use the model's original weights");
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
      refuse(key, "is given: mixtures of experts are not supported");
    }
    refuse("no_rope_layers", "is given: layers without rotary embedding are not supported");
    refuse("original_max_position_embeddings",
           "is given outside of rope_parameters; move it there");
    const auto tp = json.find("pretraining_tp");
    if (tp != json.end() && !tp->is_null() && *tp != 1) {
      config_json.Fail("pretraining_tp", "is not 1; only 1 is supported");
    }
    RefusePartialRotary(config_json);
  }

  // Throws unless the file has each key whose default in transformers depends on the model type.
  static void RequireKeys(const JsonObject& config_json, Type type) {
    const nlohmann::json& json = config_json.value();
    const auto require = [&](const char* key) {
      if (!json.contains(key)) {
        config_json.Fail(key, "is missing; save the model with transformers, which writes it");
      }
    };
    if (type != Type::kLlama) require("num_key_value_heads");
    if (type == Type::kQwen3) require("head_dim");
    if (type == Type::kMistral) require("sliding_window");
  }
};

}  // namespace

std::optional<int64_t> DecoderConfig::WindowOf(int64_t index) const {
  if (model_type == Type::kMistral) return sliding_window;
  if (!use_sliding_window) return std::nullopt;
  const bool slides = layer_types.empty()
                          ? index >= max_window_layers
                          : layer_types.at(static_cast<size_t>(index)) == kSlidingAttention;
  return slides ? sliding_window : std::nullopt;
}

std::optional<int64_t> DecoderConfig::end_token() const {
  nlohmann::json end = nlohmann::json::parse(other_keys).value("eos_token_id", nlohmann::json());
  if (end.is_array() && end.size() == 1) end = nlohmann::json(end[0]);
  return end.is_number_integer() ? std::optional(end.get<int64_t>()) : std::nullopt;
}

const ModelFamily& DecoderFamily() {
  static const DecoderModels kFamily;
  return kFamily;
}

}  // namespace dslaunch
