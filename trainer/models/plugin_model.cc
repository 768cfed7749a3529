#include "trainer/models/plugin_model.h"

#include "dslaunch/plugin.h"
#include "trainer/config/json_object.h"
#include "trainer/plugin/plugin_library.h"

namespace dslaunch {

std::shared_ptr<Model> LoadPluginModel(const PluginConfig& config,
                                       const std::vector<int64_t>& input_shape) {
  PluginInput input{input_shape, config.params, NumbersOf(config.params, "model.params")};
  const PluginPart part = {config.path, "model.path", "model", ""};
  const auto& plugin = *static_cast<const PluginSymbol*>(FindPluginPart(part));
  std::shared_ptr<Model> model;
  CallPlugin(part, "cannot make the model", [&] { model = plugin.make(input); });
  if (model == nullptr) FailPlugin(part, "cannot make the model: its function returns null");
  return model;
}

}  // namespace dslaunch
