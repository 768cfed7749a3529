#include "trainer/weights/config_json.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/config/json_object.h"
#include "trainer/weights/json_file.h"

namespace dslaunch {

std::string ConfigJsonText(const ModelConfig& model, const std::string& dtype) {
  nlohmann::json config = model.family().ConfigJson(model, dtype);
  if (!model.family().InTransformers()) config["type"] = model.type();
  return config.dump(2) + "\n";
}

void CheckConfigJson(const ModelConfig& model, const std::string& folder) {
  const std::string path = folder + "/" + kConfigJson;
  std::error_code error;
  if (!model.family().InTransformers() || !std::filesystem::exists(path, error)) return;
  const nlohmann::json parsed = ReadJsonFile(path);
  JsonObject object(parsed, path, "");
  model.family().CheckConfigJson(model, object);
}

}  // namespace dslaunch
