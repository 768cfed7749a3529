#include "trainer/models/plugin_model.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstring>
#include <filesystem>

#include "base/sanitize.h"
#include "dslaunch/plugin.h"
#include "trainer/base/train_error.h"
#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxStamp = 200;  // of another version's, which may be anything

[[noreturn]] void Refuse(const std::string& path, const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, "the plugin " + path + " " + problem);
}

const PluginSymbol& Load(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    Refuse(path, "does not exist; give the path of the shared library in model.path");
  // Lazily: what another LibTorch lacks must not keep the stamp from being read.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    Refuse(path, "cannot be loaded; it must be a shared library built for " DSLAUNCH_PLUGIN_STAMP
                 " (" +
                     SanitizeForTerminal(dlerror()) + ")");
  }
  const auto* symbol = static_cast<const PluginSymbol*>(dlsym(library, "dslaunch_plugin"));
  if (symbol == nullptr)
    Refuse(path, "defines no model: write DSLAUNCH_PLUGIN(YourModel) into it (dslaunch/plugin.h)");
  if (std::strcmp(symbol->stamp, DSLAUNCH_PLUGIN_STAMP) != 0) {
    Refuse(path, "was built for " +
                     SanitizeForTerminal({symbol->stamp, strnlen(symbol->stamp, kMaxStamp)}) +
                     "; this trainer is " DSLAUNCH_PLUGIN_STAMP ": build the plugin against it");
  }
  return *symbol;
}

}  // namespace

std::shared_ptr<Model> LoadPluginModel(const PluginConfig& config,
                                       const std::vector<int64_t>& input_shape) {
  PluginInput input{input_shape, config.params, {}};
  const nlohmann::json params = ParseJson(config.params, "model.params");
  for (const auto& [name, value] : params.items()) {
    if (value.is_number()) input.numbers[name] = value.get<double>();
  }
  // As a path: without a slash it would be looked for among the system's libraries.
  const std::string path = std::filesystem::absolute(config.path);
  const PluginSymbol& plugin = Load(path);
  std::shared_ptr<Model> model;
  try {
    model = plugin.make(input);
  } catch (const c10::Error& error) {
    Refuse(path, std::string("cannot make the model: ") + error.what_without_backtrace());
  } catch (const std::exception& error) {
    Refuse(path, std::string("cannot make the model: ") + error.what());
  } catch (...) {
    Refuse(path, "cannot make the model: it throws an exception that is not a std::exception");
  }
  if (model == nullptr) Refuse(path, "cannot make the model: its function returns null");
  return model;
}

}  // namespace dslaunch
