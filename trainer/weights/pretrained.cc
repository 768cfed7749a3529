#include "trainer/weights/pretrained.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/config/lora_config.h"
#include "trainer/weights/config_json.h"
#include "trainer/weights/weight_files.h"
#include "trainer/weights/weight_shards.h"
#include "trainer/weights/weight_sources.h"

namespace dslaunch {
namespace {

// Returns the source of each tensor of the model, after all checks of InitWeights.
WeightSources FindSources(const Model& model, const ModelConfig& config, const std::string& path) {
  CheckConfigJson(config, path);
  const WeightNames names = config.family().Names();
  std::map<std::string, at::Tensor> wanted = TensorsOf(model);
  std::erase_if(wanted, [](const auto& item) { return IsAdapterTensor(item.first); });
  WeightSources sources, copies;
  for (const std::string& file_name : WeightFiles(path)) {
    const auto file = std::make_shared<const SafetensorsFile>(file_name);
    for (const auto& [name, tensor] : file->tensors()) {
      const WeightSource source = {file, tensor, file_name + ": tensor " + name};
      const std::string known = wanted.contains(name) ? name : names.prefix + name;
      const auto target = wanted.find(known);
      if (target != wanted.end()) {
        if (!sources.emplace(known, source).second) RefuseInput(source.place + " is given twice");
        CheckFits(source, target->second);
      } else if (const auto copy = names.copies.find(name); copy != names.copies.end()) {
        CheckFits(source, wanted.at(copy->second.tensor));
        copies.emplace(name, source);
      } else if (std::ranges::none_of(names.ignored_endings, [&name](const std::string& ending) {
                   return name.ends_with(ending);
                 })) {
        RefuseInput(source.place + " is not in the model; these are the weights of another model");
      }
    }
  }
  for (const auto& [name, tensor] : wanted) {
    if (!sources.contains(name)) RefuseInput(path + ": holds no tensor " + name);
  }
  for (const auto& [name, source] : copies) {
    const WeightNames::Copy& copy = names.copies.at(name);
    if (AreSame(source, sources.at(copy.tensor), wanted.at(copy.tensor).scalar_type())) continue;
    RefuseInput(source.place + " " + copy.difference);
  }
  return sources;
}

// Returns PyTorch's name of the first 16-bit dtype in `dtypes`, such as "bfloat16"; "float32" if no
// dtype has 16 bits.
std::string TorchDtypeName(const std::vector<at::ScalarType>& dtypes) {
  for (const at::ScalarType dtype : dtypes) {
    if (dtype == at::kHalf) return "float16";
    if (dtype == at::kBFloat16) return "bfloat16";
  }
  return "float32";
}

}  // namespace

void InitWeights(Model& model, const ModelConfig& config, const std::string& path) {
  FillModel(
      model, [](const std::string& name) { return !IsAdapterTensor(name); },
      [&](const std::vector<TensorPart>& parts) { InitWeights(model, config, parts, path); });
}

void InitWeights(const Model& model, const ModelConfig& config,
                 const std::vector<TensorPart>& parts, const std::string& path) {
  const at::NoGradGuard no_grad;
  const WeightSources sources = FindSources(model, config, path);
  for (const TensorPart& part : parts) {
    if (!IsAdapterTensor(part.name)) Fill(part, sources.at(part.name));
  }
}

void WriteConfigJson(const ModelConfig& config, const std::vector<at::ScalarType>& dtypes,
                     const std::string& folder) {
  ReplaceFile(folder, kConfigJson, [&](const std::string& path) {
    WriteNewFile(path, ConfigJsonText(config, TorchDtypeName(dtypes)));
  });
  SyncFolder(folder);
}

void ExportHuggingFace(const std::vector<ExportedTensor>& tensors,
                       const std::function<at::Tensor(size_t index)>& whole,
                       const std::optional<ModelConfig>& config, const std::string& folder) {
  std::vector<TensorHeader> headers;
  std::vector<at::ScalarType> dtypes;
  for (const ExportedTensor& tensor : tensors) {
    headers.push_back({tensor.name, SafetensorsDtype(tensor.dtype), tensor.shape});
    dtypes.push_back(tensor.dtype);
  }
  WriteWeights({folder}, headers, [&](size_t i, NewSafetensorsFile& file) {
    const at::Tensor values = whole(i).detach().cpu().contiguous();
    if (values.scalar_type() != tensors[i].dtype || values.sizes() != tensors[i].shape) {
      throw TrainError(ExitCode::kInternal, "internal error: " + tensors[i].name +
                                                " is exported with a wrong shape or dtype");
    }
    file.Write(values.const_data_ptr(), values.nbytes());
  });
  if (config) WriteConfigJson(*config, dtypes, folder);
}

void ExportHuggingFace(const std::vector<NamedTensor>& state, const ModelConfig& config,
                       const std::string& folder) {
  std::vector<ExportedTensor> tensors;
  for (const NamedTensor& item : state) {
    tensors.push_back({item.name, item.tensor.scalar_type(), item.tensor.sizes().vec()});
  }
  ExportHuggingFace(
      tensors, [&](size_t index) { return state[index].tensor; }, config, folder);
}

}  // namespace dslaunch
