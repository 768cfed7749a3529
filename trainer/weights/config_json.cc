#include "trainer/weights/config_json.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/config/json/json_object.h"
#include "trainer/config/model_family.h"
#include "trainer/weights/json_file.h"

namespace dslaunch {

std::string ConfigJsonText(const ModelConfig& model, const std::string& dtype) {
  return model.family().ConfigJson(model, dtype).dump(2) + "\n";
}

void CheckConfigJson(const ModelConfig& model, const std::string& folder) {
  const std::string path = folder + "/" + kConfigJson;
  std::error_code error;
  if (!model.family().InTransformers() || !std::filesystem::exists(path, error)) return;
  const nlohmann::json parsed = ReadJsonFile(path);
  JsonObject object(parsed, path, "");
  const ModelFamily& family = model.family();
  if (&FamilyOfConfigJson(object) != &family) {
    object.Fail("model_type", std::string("is of another model; model.type is ") + model.type());
  }
  // The default of a key may be the value of another key, so both configurations are compared in
  // the same complete form.
  const auto whole = [&](const ModelConfig& config) {
    return family.ConfigJson(config, "float32");
  };
  const nlohmann::json saved = whole(family.ReadConfigJson(object)), own = whole(model);
  for (const char* key : family.KeysNotInShapes()) {
    const nlohmann::json theirs = saved.value(key, nlohmann::json());
    const nlohmann::json ours = own.value(key, nlohmann::json());
    if (theirs == ours) continue;
    object.Fail(key, "is " + theirs.dump() + "; model." + key + " is " + ours.dump());
  }
}

}  // namespace dslaunch
