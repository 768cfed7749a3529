#include "trainer/families/mlp/mlp_config.h"

#include "trainer/config/key_table.h"

namespace dslaunch {
namespace {

const KeyTable<MlpConfig>& MlpKeys() {
  static const KeyTable<MlpConfig> kKeys = {
      IntKey("num_classes", &MlpConfig::num_classes, {2, 1 << 20}, "number of classes"),
      IntKey("hidden_size", &MlpConfig::hidden_size, {1, 1 << 20}, "units of the hidden layer")};
  return kKeys;
}

class MlpModels : public ModelFamily {
 public:
  const char* type() const override { return "mlp"; }
  ModelConfig Read(JsonObject& section) const override { return ReadKeys(section, MlpKeys()); }
  DataNeeds Needs(const ModelConfig& config) const override {
    return {.classes = config.As<MlpConfig>().num_classes};
  }
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string&) const override {
    return ShowKeys(MlpKeys(), config.As<MlpConfig>());
  }
};

}  // namespace

const ModelFamily& MlpFamily() {
  static const MlpModels kFamily;
  return kFamily;
}

}  // namespace dslaunch
