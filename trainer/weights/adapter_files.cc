#include "trainer/weights/adapter_files.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/config/json/json_object.h"
#include "trainer/weights/json_file.h"
#include "trainer/weights/weight_shards.h"
#include "trainer/weights/weight_sources.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxAdapterConfigBytes = 1 << 20;

// Throws if the adapters in `folder` would compute different results with the settings of `lora`.
void CheckSettings(const LoraConfig& lora, const std::string& folder) {
  const std::string path = folder + "/" + kAdapterConfigFile;
  const nlohmann::json json = ReadJsonFile(path, kMaxAdapterConfigBytes);
  JsonObject object(json, path, "");
  const LoraConfig saved = ReadAdapterConfig(JsonObject(json, path, ""));
  const auto check = [&](const char* key, const auto& theirs, const char* own_key,
                         const auto& own) {
    if (theirs == own) return;
    object.Fail(key, "is " + nlohmann::json(theirs).dump() + "; lora." + own_key + " is " +
                         nlohmann::json(own).dump());
  };
  check("r", saved.rank, "rank", lora.rank);
  check("lora_alpha", saved.alpha, "alpha", lora.alpha);
  check("use_rslora", saved.use_rslora, "use_rslora", lora.use_rslora);
}

// Returns the source of each adapter of the model, after all checks of InitAdapters.
WeightSources FindAdapters(const Model& model, const LoraConfig& lora, const std::string& folder) {
  CheckSettings(lora, folder);
  const std::string path = folder + "/" + kAdapterWeightsFile;
  std::error_code error;
  if (!fs::exists(path, error) && fs::exists(folder + "/adapter_model.bin", error)) {
    RefuseInput(folder +
                "/adapter_model.bin is a pickle, which can run code and is never read; "
                "save the adapter as safetensors");
  }
  std::map<std::string, at::Tensor> wanted = TensorsOf(model);
  std::erase_if(wanted, [](const auto& item) { return !IsAdapterTensor(item.first); });
  const auto file = std::make_shared<const SafetensorsFile>(path);
  WeightSources sources;
  for (const auto& [name, tensor] : file->tensors()) {
    const WeightSource source = {file, tensor, path + ": tensor " + name};
    const auto target = name.starts_with(kAdapterPrefix)
                            ? wanted.find(name.substr(sizeof(kAdapterPrefix) - 1))
                            : wanted.end();
    if (target == wanted.end()) {
      RefuseInput(source.place +
                  " is not an adapter of the model; lora.targets names other layers, "
                  "or the adapters are of another model");
    }
    CheckFits(source, target->second);
    sources.emplace(target->first, source);
  }
  for (const auto& [name, tensor] : wanted) {
    if (!sources.contains(name)) RefuseInput(path + ": holds no tensor " + kAdapterPrefix + name);
  }
  return sources;
}

}  // namespace

void InitAdapters(Model& model, const LoraConfig& lora, const std::string& folder) {
  FillModel(model, IsAdapterTensor, [&](const std::vector<TensorPart>& parts) {
    InitAdapters(model, lora, parts, folder);
  });
}

void InitAdapters(const Model& model, const LoraConfig& lora, const std::vector<TensorPart>& parts,
                  const std::string& folder) {
  const at::NoGradGuard no_grad;
  const WeightSources sources = FindAdapters(model, lora, folder);
  for (const TensorPart& part : parts) {
    if (IsAdapterTensor(part.name)) Fill(part, sources.at(part.name));
  }
}

void WriteAdapters(const std::vector<NamedTensor>& adapters, const LoraConfig& lora,
                   const ModelConfig& model, const std::string& base, const std::string& folder) {
  std::map<std::string, at::Tensor> tensors;  // adapter tensors, sorted by name
  std::set<std::string> layers;
  for (const NamedTensor& item : adapters) {
    tensors[kAdapterPrefix + item.name] = item.tensor.detach().cpu().contiguous();
    layers.emplace(AdaptedLayerOf(item.name));
  }
  std::vector<TensorBytes> bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes.push_back({name, SafetensorsDtype(tensor.scalar_type()), tensor.sizes().vec(),
                     tensor.const_data_ptr()});
  }
  const bool fan_in_fan_out = model.family().AdaptedLayers() == WeightLayout::kInOut;
  const nlohmann::json config =
      AdapterConfigJson(lora, {layers.begin(), layers.end()}, base, fan_in_fan_out);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw TrainError(ExitCode::kIo, folder + ": cannot be created: " + error.message());
  ReplaceFile(folder, kAdapterWeightsFile, [&](const std::string& path) {
    WriteSafetensors(path, bytes, {{"format", "pt"}});
  });
  ReplaceFile(folder, kAdapterConfigFile,
              [&](const std::string& path) { WriteNewFile(path, config.dump(2) + "\n"); });
  SyncFolder(folder);
}

}  // namespace dslaunch
