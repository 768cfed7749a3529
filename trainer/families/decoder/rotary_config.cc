#include "trainer/families/decoder/rotary_config.h"

#include "trainer/config/json/key_table.h"

namespace dslaunch {
namespace {

using Scaling = RotaryConfig::Type;

constexpr double kMaxFactor = 1e6;

NumberRange PositiveRange() { return {1e-6, kMaxFactor}; }

KeyRow<RotaryConfig> ThetaKey(const char* key) {
  return NumberKey(key, &RotaryConfig::theta, {2, 1e15}, "base of the wavelengths");
}

KeyRow<RotaryConfig> TypeKey(const char* key, std::string meaning) {
  KeyRow<RotaryConfig> row = WordKey(key, &RotaryConfig::type,
                                     {"default", "linear", "llama3", "yarn"}, std::move(meaning));
  row.read = [read = row.read](JsonObject& object, const char* name, RotaryConfig& rotary) {
    const nlohmann::json value = object.value().value(name, nlohmann::json());
    for (const char* other : {"dynamic", "longrope", "proportional", "mrope", "su"}) {
      if (value == other) {
        object.Fail(name, std::string("is \"") + other +
                              "\", which is not supported; supported: default, linear, llama3 "
                              "and yarn");
      }
    }
    read(object, name, rotary);
  };
  return row;
}

const KeyTable<RotaryConfig>& ScalingKeys() {
  using R = RotaryConfig;
  static const KeyTable<R> kKeys = {
      OlderName(TypeKey("type", "older name of `rope_type`")),
      TypeKey("rope_type",
              "how wavelengths are stretched for longer sequences; `default`: not at all"),
      ThetaKey("rope_theta"),
      NumberKey("factor", &R::factor, {1, kMaxFactor}, "linear, llama3, yarn: required"),
      NumberKey("low_freq_factor", &R::low_freq_factor, PositiveRange(), "llama3"),
      NumberKey("high_freq_factor", &R::high_freq_factor, PositiveRange(), "llama3"),
      IntKey("original_max_position_embeddings", &R::original_max_position_embeddings,
             {1, int64_t{1} << 30},
             "llama3, yarn: tokens of the longest sequence of the first training; default: "
             "`max_position_embeddings`"),
      NumberKey("beta_fast", &R::beta_fast, PositiveRange(), "yarn"),
      NumberKey("beta_slow", &R::beta_slow, PositiveRange(), "yarn"),
      NumberKey("attention_factor", &R::attention_factor, PositiveRange(),
                "yarn: factor of cosines and sines; default: 0.1 ln(`factor`) + 1")};
  return kKeys;
}

void ReadScaling(JsonObject object, RotaryConfig& rotary) {
  RefusePartialRotary(object);
  object.Ignore({"partial_rotary_factor", "finetuned"});
  object.RefuseUnlessOff({"mscale", "mscale_all_dim"}, "is not supported; give attention_factor");
  object.RefuseUnlessStandard("truncate", true, "only true is supported");
  const RotaryConfig standard{.theta = rotary.theta, .attention_factor = {}};
  rotary = standard;
  ReadKeys(object, ScalingKeys(), rotary);
  const bool needs_factor = rotary.type != Scaling::kDefault;
  if (needs_factor && !object.Has("factor")) object.Fail("factor", "is missing");
  if (rotary.type == Scaling::kLlama3 && !(rotary.low_freq_factor < rotary.high_freq_factor)) {
    object.Fail("high_freq_factor", "must be above low_freq_factor");
  }
  if (rotary.type == Scaling::kYarn && !(rotary.beta_slow < rotary.beta_fast)) {
    object.Fail("beta_fast", "must be above beta_slow");
  }
  object.RefuseUnknown();
}

bool IsGiven(const JsonObject& section, const char* key) {
  return section.Has(key) && !section.value()[key].empty();
}

}  // namespace

void RefusePartialRotary(const JsonObject& object) {
  const nlohmann::json value = object.value().value("partial_rotary_factor", nlohmann::json());
  if (!value.is_null() && value != 1) {
    object.Fail("partial_rotary_factor", "is not 1: rotating a part of a head is not supported");
  }
}

RotaryConfig ReadRotary(JsonObject& section, int64_t max_position_embeddings) {
  RotaryConfig rotary;
  const KeyRow<RotaryConfig> theta = ThetaKey("rope_theta");
  theta.read(section, theta.key, rotary);
  ExplainLastKey("older place of rope_parameters.rope_theta");
  const bool is_older = IsGiven(section, "rope_scaling");
  const auto parameters =
      section.Object(kRotaryKey, "The rotary embedding (arXiv 2104.09864, 2309.00071).");
  if (parameters && !is_older) ReadScaling(*parameters, rotary);
  const auto scaling = section.Object("rope_scaling", "Older name of rope_parameters.");
  if (scaling && is_older) ReadScaling(*scaling, rotary);
  if (rotary.original_max_position_embeddings == 0) {
    rotary.original_max_position_embeddings = max_position_embeddings;
  }
  return rotary;
}

nlohmann::ordered_json ShowRotary(const RotaryConfig& rotary) {
  nlohmann::ordered_json json = ShowKeys(ScalingKeys(), rotary);
  const auto erase = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) json.erase(key);
  };
  const bool llama3 = rotary.type == Scaling::kLlama3, yarn = rotary.type == Scaling::kYarn;
  if (rotary.type == Scaling::kDefault) erase({"factor"});
  if (!llama3) erase({"low_freq_factor", "high_freq_factor"});
  if (!yarn) erase({"beta_fast", "beta_slow"});
  if (!yarn || !rotary.attention_factor) erase({"attention_factor"});
  if (!llama3 && !yarn) erase({"original_max_position_embeddings"});
  return json;
}

nlohmann::json ShowOlderRotary(const RotaryConfig& rotary) {
  nlohmann::json scaling = ShowRotary(rotary);
  scaling.erase("rope_theta");
  if (rotary.type == Scaling::kDefault) scaling = nullptr;
  return {{"rope_theta", rotary.theta}, {"rope_scaling", std::move(scaling)}};
}

}  // namespace dslaunch
