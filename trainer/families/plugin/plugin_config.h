// Defines the settings of a user's own model in a shared library (dslaunch/plugin.h).
#pragma once

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& PluginFamily();

struct PluginConfig {
  static const ModelFamily& Family() { return PluginFamily(); }
  DataNeeds Needs() const { return {}; }

  std::string path;           // path of the shared library
  std::string params = "{}";  // JSON text of model.params, which the plugin interprets
};

}  // namespace dslaunch
