#include "trainer/config/model_family.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "trainer/config/json/json_object.h"

namespace dslaunch {
namespace {

struct Unsupported {
  std::string_view prefix;  // beginning of a model_type that is not supported
  const char* reason;
};

// Model types that are not supported, with the reason. The first entry that matches is used.
constexpr Unsupported kUnsupported[] = {
    {"gemma", "Gemma scales its embedding and its norms otherwise"},
    {"phi3", "Phi-3 has fused projections"},
    {"smollm3", "some layers of SmolLM3 have no rotary embedding"},
    {"mixtral", "it is a mixture of experts"},
    {"qwen2_moe", "it is a mixture of experts"},
    {"qwen3_moe", "it is a mixture of experts"},
    {"deepseek", "it is a mixture of experts"},
    {"gpt_oss", "it is a mixture of experts"},
    {"llama4", "it is a mixture of experts"},
    {"qwen3_next", "it mixes attention with other layers"},
    {"qwen3_5", "it mixes attention with other layers"},
    {"qwen2_vl", "it takes images"},
    {"qwen2_5_vl", "it takes images"},
    {"qwen3_vl", "it takes images"},
    {"mllama", "it takes images"},
    {"llava", "it takes images"},
    {"mistral3", "it takes images"}};

}  // namespace

nlohmann::json ModelFamily::LeastSection() const { return nlohmann::json::object(); }

std::string ModelFamily::TensorParallelRefusal(const ModelConfig&, int64_t parts) const {
  return std::string("model.type ") + type() + " cannot be divided over the " +
         std::to_string(parts) +
         " ranks of tensor_parallel.autotp_size, because its layers have no cuts; remove the key";
}

nlohmann::json ModelFamily::ConfigJson(const ModelConfig& config, const std::string&) const {
  return Section(config);
}

const ModelFamily& FamilyOfConfigJson(JsonObject& config_json) {
  std::set<std::string> types;
  for (const ModelFamily* family : ModelFamilies()) {
    const std::vector<std::string> own = family->ModelTypes();
    types.insert(own.begin(), own.end());
  }
  std::string known;
  for (const std::string& type : types) known += (known.empty() ? "" : ", ") + type;
  const std::string given =
      config_json.TypeOf("model_type") == JsonType::string ? *config_json.String("model_type") : "";
  for (const auto& [prefix, reason] : kUnsupported) {
    if (!given.starts_with(prefix)) continue;
    config_json.Fail("model_type", "is \"" + given + "\", which is not supported: " + reason +
                                       "; supported: " + known);
  }
  const std::optional<std::string> type = config_json.Word("model_type", types);
  if (!type) config_json.Fail("model_type", "is missing; supported: " + known);
  return **std::ranges::find_if(ModelFamilies(), [&](const ModelFamily* family) {
    return std::ranges::count(family->ModelTypes(), *type) > 0;
  });
}

std::string SectionOfConfigJson(const std::string& text, const std::string& source) {
  const nlohmann::json json = ParseJson(text, source);
  JsonObject config_json(json, source, "");
  const ModelFamily& family = FamilyOfConfigJson(config_json);
  return family.Section(family.ReadConfigJson(config_json)).dump();
}

}  // namespace dslaunch
