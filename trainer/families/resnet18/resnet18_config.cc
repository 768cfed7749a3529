#include "trainer/families/resnet18/resnet18_config.h"

#include "trainer/config/key_table.h"

namespace dslaunch {
namespace {

const KeyTable<Resnet18Config>& Resnet18Keys() {
  static const KeyTable<Resnet18Config> kKeys = {
      IntKey("num_classes", &Resnet18Config::num_classes, {2, 1 << 20}, "number of classes")};
  return kKeys;
}

class Resnet18Models : public ModelFamily {
 public:
  const char* type() const override { return "resnet18"; }
  ModelConfig Read(JsonObject& section) const override { return ReadKeys(section, Resnet18Keys()); }
  DataNeeds Needs(const ModelConfig& config) const override {
    return {.classes = config.As<Resnet18Config>().num_classes};
  }
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string&) const override {
    return ShowKeys(Resnet18Keys(), config.As<Resnet18Config>());
  }
};

}  // namespace

const ModelFamily& Resnet18Family() {
  static const Resnet18Models kFamily;
  return kFamily;
}

}  // namespace dslaunch
