#include "trainer/families/cnn/cnn_config.h"

#include "trainer/config/key_table.h"

namespace dslaunch {
namespace {

const KeyTable<CnnConfig>& CnnKeys() {
  static const KeyTable<CnnConfig> kKeys = {
      IntKey("num_classes", &CnnConfig::num_classes, {2, 1 << 20}, "number of classes"),
      IntKey("hidden_size", &CnnConfig::hidden_size, {1, 1 << 20},
             "units of the layer before the last")};
  return kKeys;
}

class CnnModels : public ModelFamily {
 public:
  const char* type() const override { return "cnn"; }
  ModelConfig Read(JsonObject& section) const override { return ReadKeys(section, CnnKeys()); }
  DataNeeds Needs(const ModelConfig& config) const override {
    return {.classes = config.As<CnnConfig>().num_classes};
  }
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string&) const override {
    return ShowKeys(CnnKeys(), config.As<CnnConfig>());
  }
};

}  // namespace

const ModelFamily& CnnFamily() {
  static const CnnModels kFamily;
  return kFamily;
}

}  // namespace dslaunch
