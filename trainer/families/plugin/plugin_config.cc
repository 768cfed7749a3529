#include "trainer/families/plugin/plugin_config.h"

#include "trainer/families/table_family.h"

namespace dslaunch {
namespace {

class PluginModels : public TableFamily<PluginConfig> {
 public:
  PluginModels()
      : TableFamily("plugin",
                    {TextKey("path", &PluginConfig::path, "required; the plugin's shared library"),
                     ObjectTextKey("params", &PluginConfig::params, "parameters for the plugin")}) {
  }

  ModelConfig Read(JsonObject& section) const override {
    ModelConfig plugin = TableFamily::Read(section);
    if (Library(plugin).empty())
      section.Fail("path", "is missing; give the path of the plugin's shared library");
    return plugin;
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
