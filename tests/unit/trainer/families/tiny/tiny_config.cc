#include "tests/unit/trainer/families/tiny/tiny_config.h"

#include "trainer/config/key_table.h"

namespace dslaunch {
namespace {

const KeyTable<TinyConfig>& TinyKeys() {
  static const KeyTable<TinyConfig> kKeys = {
      IntKey("width", &TinyConfig::width, {1, 64}, "units of the tiny layer"),
      IntKey("num_classes", &TinyConfig::num_classes, {2, 100}, "number of classes")};
  return kKeys;
}

class TinyModels : public ModelFamily {
 public:
  const char* type() const override { return "tiny"; }
  ModelConfig Read(JsonObject& section) const override { return ReadKeys(section, TinyKeys()); }
  DataNeeds Needs(const ModelConfig& config) const override {
    return {.classes = config.As<TinyConfig>().num_classes};
  }
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string& dtype) const override {
    nlohmann::json json = ShowKeys(TinyKeys(), config.As<TinyConfig>());
    json["model_type"] = type();
    json["dtype"] = dtype;
    return json;
  }
  bool InTransformers() const override { return true; }
  WeightNames Names() const override {
    return {.prefix = "net.", .copies = {}, .ignored_endings = {}};
  }
  void CheckConfigJson(const ModelConfig&, JsonObject& config_json) const override {
    config_json.Word("model_type", {"tiny"});
  }
};

}  // namespace

const ModelFamily& TinyFamily() {
  static const TinyModels kFamily;
  return kFamily;
}

}  // namespace dslaunch
