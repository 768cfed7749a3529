// A model of the user's own, from a shared library (dslaunch/plugin.h).
#pragma once

#include "trainer/config/model_family.h"

namespace dslaunch {

const ModelFamily& PluginFamily();

struct PluginConfig {
  static const ModelFamily& Family() { return PluginFamily(); }
  DataNeeds Needs() const { return {}; }

  std::string path;           // path of the shared library
  std::string params = "{}";  // model.params as JSON text; the plugin reads it
};

}  // namespace dslaunch
