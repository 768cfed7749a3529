// Makes a model from a user's shared library (dslaunch/plugin.h).
#include "dslaunch/plugin.h"

#include <memory>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/config/json/json_object.h"
#include "trainer/families/plugin/plugin_config.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"
#include "trainer/plugin/plugin_library.h"

namespace dslaunch {

// Loads the library, which is never unloaded, and makes its model. Throws TrainError kBadInput,
// naming the library, if the library cannot be loaded, is not a plugin, was built for another
// version of dslaunch or LibTorch, or cannot make a model from these parameters.
std::shared_ptr<Model> MakePlugin(const ModelConfig& config,
                                  const std::vector<int64_t>& input_shape, const TensorParallel&) {
  const auto& settings = config.As<PluginConfig>();
  PluginInput input{input_shape, settings.params, NumbersOf(settings.params, "model.params")};
  const PluginPart part = {settings.path, "model.path", "model", ""};
  const auto& plugin = *static_cast<const PluginSymbol*>(FindPluginPart(part));
  std::shared_ptr<Model> model;
  CallPlugin(part, "cannot make the model", [&] { model = plugin.make(input); });
  if (model == nullptr) FailPlugin(part, "cannot make the model: its function returns null");
  return model;
}

}  // namespace dslaunch
