#include "trainer/families/plugin/plugin_config.h"

#include "trainer/config/key_table.h"

namespace dslaunch {
namespace {

const KeyTable<PluginConfig>& PluginKeys() {
  static const KeyTable<PluginConfig> kKeys = {
      TextKey("path", &PluginConfig::path, "required; the plugin's shared library"),
      ObjectTextKey("params", &PluginConfig::params, "parameters for the plugin")};
  return kKeys;
}

class PluginModels : public ModelFamily {
 public:
  const char* type() const override { return "plugin"; }

  ModelConfig Read(JsonObject& section) const override {
    const PluginConfig plugin = ReadKeys(section, PluginKeys());
    if (plugin.path.empty())
      section.Fail("path", "is missing; give the path of the plugin's shared library");
    return plugin;
  }

  DataNeeds Needs(const ModelConfig&) const override { return {}; }
  nlohmann::json ConfigJson(const ModelConfig& config, const std::string&) const override {
    return ShowKeys(PluginKeys(), config.As<PluginConfig>());
  }
  std::string Library(const ModelConfig& config) const override {
    return config.As<PluginConfig>().path;
  }
  nlohmann::json LeastSection() const override { return {{"path", "libmine.so"}}; }
};

}  // namespace

const ModelFamily& PluginFamily() {
  static const PluginModels kFamily;
  return kFamily;
}

}  // namespace dslaunch
