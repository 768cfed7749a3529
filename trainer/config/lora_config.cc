#include "trainer/config/lora_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/config/json/json_object.h"
#include "trainer/config/json/key_table.h"

namespace dslaunch {
namespace {

constexpr char kAllLinear[] = "all-linear";
constexpr std::string_view kEndOfA = ".lora_A.weight";
constexpr std::string_view kEndOfB = ".lora_B.weight";
constexpr std::string_view kHead = "lm_head";  // name of the head in families with a separate head

constexpr IntRange kRanks = {1, 1 << 16};
constexpr NumberRange kAlphas = {0, 1e9};
constexpr size_t kMostTargets = 100'000;
constexpr size_t kMaxTargetBytes = 1000;

// Reads the value of `key`: a list of names of layers, or "all-linear".
std::vector<std::string> ReadTargets(JsonObject& object, const char* key) {
  if (object.TypeOf(key) == JsonType::string) {
    (void)object.Word(key, {kAllLinear});
    return {};
  }
  const std::vector<std::string> targets = object.Strings(key);
  if (targets.size() > kMostTargets) {
    object.Fail(key, "has " + std::to_string(targets.size()) + " names; at most " +
                         std::to_string(kMostTargets) + " are read");
  }
  for (const std::string& target : targets) {
    if (target.empty() || target.size() > kMaxTargetBytes) {
      object.Fail(key, "has a name with " + std::to_string(target.size()) +
                           " bytes; give names of linear layers, such as q_proj");
    }
  }
  return targets;
}

const KeyTable<LoraConfig>& LoraKeys() {
  using L = LoraConfig;
  static const KeyTable<L> kKeys = {
      Required(IntKey("rank", &L::rank, kRanks, "required; rank of each update"),
               "is missing; give the rank of the adapters, such as 16"),
      Required(NumberKey("alpha", &L::alpha, kAlphas,
                         "required; updates are scaled by `alpha` / `rank`"),
               "is missing; updates are scaled by alpha / rank, so twice the rank is usual"),
      NumberKey("dropout", &L::dropout, {0, 1}, "dropout of the adapters' inputs; below 1"),
      BoolKey("use_rslora", &L::use_rslora,
              "scale updates by `alpha` / sqrt(`rank`) instead of `alpha` / `rank`"),
      Required(
          KeyRow<L>{"targets",
                    [](JsonObject& object, const char* key, L& lora) {
                      lora.targets = ReadTargets(object, key);
                    },
                    [](const L& lora) -> nlohmann::ordered_json {
                      if (lora.targets.empty()) return kAllLinear;
                      return lora.targets;
                    },
                    "required; a list of names of linear layers, or ends of names after a dot, "
                    "such as q_proj; or `all-linear`, all linear layers but the head"},
          "is missing; give a list of names of linear layers, such as [q_proj, v_proj], or "
          "all-linear"),
      TextKey("init_weights", &L::init_weights,
              "a folder of PEFT that has the initial adapters, of the same settings")};
  return kKeys;
}

void CheckDropout(const JsonObject& object, const char* key, const LoraConfig& lora) {
  if (lora.dropout == 1) object.Fail(key, "is 1, with which adapters compute nothing");
}

// Keys of adapter_config.json that only describe the file or its origin.
const std::set<std::string> kNeutralKeys = {"auto_mapping",
                                            "base_model_name_or_path",
                                            "revision",
                                            "inference_mode",
                                            "peft_version",
                                            "task_type",
                                            "fan_in_fan_out",
                                            "megatron_config",
                                            "megatron_core",
                                            "qalora_group_size",
                                            "loftq_config",
                                            "eva_config",
                                            "corda_config",
                                            "lora_ga_config",
                                            "runtime_config",
                                            "layers_pattern",
                                            "bias",
                                            "init_lora_weights",
                                            "ensure_weight_tying"};

// Refuses initial values that also change the base model's weights.
void CheckInitialValues(JsonObject& adapter_config) {
  const char* const key = "init_lora_weights";
  if (adapter_config.TypeOf(key) != JsonType::string) return (void)adapter_config.Bool(key);
  const std::string word = *adapter_config.String(key);
  if (word == "gaussian" || word == "orthogonal" || word == "eva") return;
  adapter_config.Fail(key, "is \"" + word +
                               "\", which changes the base's weights; convert the adapter in PEFT "
                               "first (path_initial_model_for_weight_conversion)");
}

// Returns whether a key with this value has no effect, as if the key were absent.
bool IsOff(const nlohmann::json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

// Refuses each key that has an effect but is neither read nor neutral: PEFT's variants of LoRA, and
// keys of later versions of PEFT.
void RefuseVariants(const JsonObject& adapter_config) {
  static const std::set<std::string> kRead = {"peft_type",    "r",          "lora_alpha",
                                              "lora_dropout", "use_rslora", "target_modules"};
  for (const auto& [key, value] : adapter_config.value().items()) {
    if (kRead.contains(key) || kNeutralKeys.contains(key) || IsOff(value)) continue;
    adapter_config.Fail(key,
                        "is set and changes what the adapter computes, which is not supported");
  }
}

}  // namespace

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (use_rslora ? std::sqrt(r) : r);
}

bool LoraConfig::Adapts(std::string_view module) const {
  if (targets.empty()) return module != kHead;
  return std::ranges::any_of(targets, [&](const std::string& target) {
    return module == target || module.ends_with("." + target);
  });
}

std::string NameOfLoraA(std::string_view module) {
  return std::string(module) + std::string(kEndOfA);
}
std::string NameOfLoraB(std::string_view module) {
  return std::string(module) + std::string(kEndOfB);
}

bool IsAdapterTensor(std::string_view name) {
  return name.ends_with(kEndOfA) || name.ends_with(kEndOfB);
}

std::string_view AdaptedLayerOf(std::string_view name) {
  return name.substr(0, name.size() - kEndOfA.size());
}

LoraConfig ReadLora(JsonObject section) {
  if (section.Has("from")) {
    section.Fail("from",
                 "is a folder, which only `dslaunch train` reads; put here the keys of the "
                 "adapters");
  }
  (void)section.String("from");
  ExplainLastKey(
      "a folder of PEFT, in place of all other keys: its adapter_config.json gives them, and its "
      "adapters are the initial ones");
  LoraConfig lora = ReadKeys(section, LoraKeys());
  CheckDropout(section, "dropout", lora);
  section.RefuseUnknown();
  return lora;
}

nlohmann::ordered_json LoraSection(const LoraConfig& lora) {
  nlohmann::ordered_json section = ShowKeys(LoraKeys(), lora);
  if (lora.init_weights.empty()) section.erase("init_weights");
  return section;
}

LoraConfig ReadAdapterConfig(JsonObject adapter_config) {
  const std::string method = adapter_config.String("peft_type").value_or("");
  if (method.empty())
    adapter_config.Fail("peft_type", "is missing; this is not an adapter of PEFT");
  if (method != "LORA") {
    adapter_config.Fail("peft_type", "is \"" + method + "\"; only LORA is supported");
  }
  LoraConfig lora;
  const auto rank = adapter_config.Int("r", kRanks.min, kRanks.max);
  if (!rank) adapter_config.Fail("r", "is missing");
  lora.rank = *rank;
  const auto alpha = adapter_config.Number("lora_alpha", kAlphas.min, kAlphas.max);
  if (!alpha) adapter_config.Fail("lora_alpha", "is missing");
  lora.alpha = *alpha;
  lora.dropout = adapter_config.Number("lora_dropout", 0, 1).value_or(0);
  CheckDropout(adapter_config, "lora_dropout", lora);
  lora.use_rslora = adapter_config.Bool("use_rslora").value_or(false);
  if (!adapter_config.Has("target_modules")) adapter_config.Fail("target_modules", "is missing");
  if (adapter_config.TypeOf("target_modules") == JsonType::string &&
      *adapter_config.String("target_modules") != kAllLinear) {
    adapter_config.Fail("target_modules",
                        "is a regular expression; only lists of names and all-linear are "
                        "supported");
  }
  lora.targets = ReadTargets(adapter_config, "target_modules");
  if (adapter_config.String("bias").value_or("none") != "none") {
    adapter_config.Fail("bias",
                        "is set, so biases of the base were trained too; only none is "
                        "supported");
  }
  CheckInitialValues(adapter_config);
  RefuseVariants(adapter_config);
  return lora;
}

std::string LoraSectionOfAdapterConfig(const std::string& text, const std::string& source) {
  const nlohmann::json json = ParseJson(text, source, JsonComments::kRefuse);
  return LoraSection(ReadAdapterConfig(JsonObject(json, source, ""))).dump();
}

nlohmann::json AdapterConfigJson(const LoraConfig& lora, const std::vector<std::string>& layers,
                                 const std::string& base, bool fan_in_fan_out) {
  std::set<std::string> targets(lora.targets.begin(), lora.targets.end());
  if (targets.empty()) {
    // Other programs accept only lists, so "all-linear" is written as a list of names.
    for (const std::string& layer : layers) targets.insert(layer.substr(layer.rfind('.') + 1));
  }
  nlohmann::json json = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"r", lora.rank},
      {"lora_dropout", lora.dropout},
      {"use_rslora", lora.use_rslora},
      {"target_modules", targets},
      {"fan_in_fan_out", fan_in_fan_out},
      {"bias", "none"},
      {"init_lora_weights", true},
      {"inference_mode", true},
      {"base_model_name_or_path", base.empty() ? nlohmann::json() : nlohmann::json(base)}};
  // PEFT writes a whole number, and some programs accept only whole numbers.
  const bool is_whole = lora.alpha == std::floor(lora.alpha);
  json["lora_alpha"] =
      is_whole ? nlohmann::json(static_cast<int64_t>(lora.alpha)) : nlohmann::json(lora.alpha);
  return json;
}

}  // namespace dslaunch
