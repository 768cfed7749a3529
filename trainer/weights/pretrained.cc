#include "trainer/weights/pretrained.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/models/gpt2.h"
#include "trainer/shards/shards.h"
#include "trainer/weights/huggingface_config.h"
#include "trainer/weights/weight_files.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr char kGpt2Prefix[] = "transformer.";
constexpr char kGpt2Head[] = "lm_head.weight";
constexpr char kGpt2Embedding[] = "transformer.wte.weight";

// The number of heads is in no tensor's shape, but the same weights compute something else with
// another number.
void CheckSameGpt2(const Gpt2Config& config, const std::string& folder) {
  const Gpt2Config saved = ReadHuggingFaceConfig(folder);
  const std::string file = folder + "/" + kHuggingFaceConfigFile;
  if (saved.n_head != config.n_head) {
    RefuseInput(file + ": n_head is " + std::to_string(saved.n_head) + "; model.n_head is " +
                std::to_string(config.n_head));
  }
  if (saved.layer_norm_epsilon != config.layer_norm_epsilon) {
    RefuseInput(file + ": layer_norm_epsilon differs from the model's");
  }
}

bool IsMask(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

// A tensor of a file.
struct Source {
  std::shared_ptr<const SafetensorsFile> file;
  SafetensorsFile::Tensor tensor;
  std::string place;  // "model.safetensors: tensor fc1.weight"
};

void CheckFits(const Source& source, const at::Tensor& target) {
  const std::optional<at::ScalarType> type = ScalarTypeOf(source.tensor.dtype);
  if (!CanFill(type, target.scalar_type()) || target.sizes() != source.tensor.shape) {
    RefuseInput(source.place + " is " + DescribedTensor(source.tensor.dtype, source.tensor.shape) +
                " where the model has " +
                DescribedTensor(SafetensorsDtype(target.scalar_type()), target.sizes().vec()));
  }
}

Shard WholeOf(const Source& source) { return Shard::Whole(*NumElements(source.tensor.shape)); }

// Returns the elements of `shard`, flat and in the file's dtype.
at::Tensor ReadElements(const Source& source, const Shard& shard) {
  const at::Tensor elements = at::empty({shard.elements()}, *ScalarTypeOf(source.tensor.dtype));
  source.file->Read(source.tensor, WholeOf(source), shard, elements.mutable_data_ptr());
  return elements;
}

// Calls use(start, chunk) for consecutive slices of `shard`; `start` counts from its first element.
template <class Use>
void InChunks(const Shard& shard, const Use& use) {
  constexpr int64_t kChunkElements = 1 << 20;
  for (int64_t start = 0; start < shard.elements(); start += kChunkElements) {
    use(start, Slice(shard, start, start + kChunkElements));
  }
}

void Fill(const TensorPart& part, const Source& source) {
  const at::Tensor row = part.tensor.detach().view(-1);
  InChunks(part.shard, [&](int64_t start, const Shard& chunk) {
    row.narrow(0, start, chunk.elements()).copy_(ReadElements(source, chunk));
  });
}

// Whether both have the same elements after conversion to `dtype`. Both have the same shape.
bool Same(const Source& a, const Source& b, at::ScalarType dtype) {
  bool same = true;
  InChunks(WholeOf(a), [&](int64_t, const Shard& chunk) {
    same = same && at::equal(ReadElements(a, chunk).to(dtype), ReadElements(b, chunk).to(dtype));
  });
  return same;
}

std::map<std::string, at::Tensor> TensorsOf(const Model& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace(item.key(), item.value());
  return tensors;
}

// Finds the source of each tensor of the model, and makes all checks.
std::map<std::string, Source> FindSources(const Model& model, const std::string& path) {
  const auto* gpt2 = dynamic_cast<const Gpt2*>(&model);
  std::error_code error;
  if (gpt2 != nullptr && fs::exists(path + "/" + kHuggingFaceConfigFile, error)) {
    CheckSameGpt2(gpt2->config(), path);
  }
  const std::map<std::string, at::Tensor> wanted = TensorsOf(model);
  std::map<std::string, Source> sources;
  std::optional<Source> head;
  for (const std::string& file_name : WeightFiles(path)) {
    const auto file = std::make_shared<const SafetensorsFile>(file_name);
    for (const auto& [name, tensor] : file->tensors()) {
      const Source source = {file, tensor, file_name + ": tensor " + name};
      const std::string known =
          gpt2 != nullptr && !wanted.contains(name) ? kGpt2Prefix + name : name;
      const auto target = wanted.find(known);
      if (target != wanted.end()) {
        if (!sources.emplace(known, source).second) RefuseInput(source.place + " is given twice");
        CheckFits(source, target->second);
      } else if (gpt2 != nullptr && name == kGpt2Head) {
        CheckFits(source, wanted.at(kGpt2Embedding));
        head = source;
      } else if (gpt2 == nullptr || !IsMask(name)) {
        RefuseInput(source.place + " is not in the model; these are the weights of another model");
      }
    }
  }
  for (const auto& [name, tensor] : wanted) {
    if (!sources.contains(name)) RefuseInput(path + ": holds no tensor " + name);
  }
  if (head && !Same(*head, sources.at(kGpt2Embedding), wanted.at(kGpt2Embedding).scalar_type())) {
    RefuseInput(head->place +
                " differs from the embedding; models whose head is not tied to the embedding " +
                "cannot be loaded");
  }
  return sources;
}

// Calls write(path) with a temporary path, and renames the file that it makes to `name`.
template <class Write>
void Replace(const std::string& folder, const std::string& name, const Write& write) {
  const std::string temporary = folder + "/tmp-" + name;
  std::error_code ignored;
  fs::remove(temporary, ignored);  // of a killed export
  write(temporary);
  const std::string path = folder + "/" + name;
  if (rename(temporary.c_str(), path.c_str()) < 0) {
    throw TrainError(ExitCode::kIo, path + ": cannot be created: " + std::strerror(errno));
  }
}

// PyTorch's name: "float32".
std::string TorchDtypeName(const std::vector<ExportedTensor>& tensors) {
  for (const ExportedTensor& tensor : tensors) {
    if (tensor.dtype == at::kHalf) return "float16";
    if (tensor.dtype == at::kBFloat16) return "bfloat16";
  }
  return "float32";
}

}  // namespace

void InitWeights(Model& model, const std::string& path) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> tensors = TensorsOf(model);
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : tensors) {
    parts.push_back(TensorPart::Whole(name, tensor.contiguous()));
  }
  InitWeights(model, parts, path);
  for (const TensorPart& part : parts) {
    const at::Tensor& tensor = tensors.at(part.name);
    if (!tensor.is_contiguous()) tensor.detach().copy_(part.tensor);
  }
}

void InitWeights(const Model& model, const std::vector<TensorPart>& parts,
                 const std::string& path) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, Source> sources = FindSources(model, path);
  for (const TensorPart& part : parts) Fill(part, sources.at(part.name));
}

void ExportHuggingFace(const std::vector<ExportedTensor>& tensors,
                       const std::function<at::Tensor(size_t index)>& whole,
                       const std::optional<ModelConfig>& config, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw TrainError(ExitCode::kIo, folder + ": cannot be created: " + error.message());

  std::vector<TensorHeader> headers;
  for (const ExportedTensor& tensor : tensors) {
    headers.push_back({tensor.name, SafetensorsDtype(tensor.dtype), tensor.shape});
  }
  Replace(folder, kWeightsFile, [&](const std::string& path) {
    // transformers requires the format of the framework here.
    NewSafetensorsFile file(path, headers, {{"format", "pt"}});
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor values = whole(i).detach().cpu().contiguous();
      if (values.scalar_type() != tensors[i].dtype || values.sizes() != tensors[i].shape) {
        throw TrainError(ExitCode::kInternal, "internal error: " + tensors[i].name +
                                                  " is exported with a wrong shape or dtype");
      }
      file.Write(values.const_data_ptr());
    }
    file.Finish();
  });
  if (config) {
    Replace(folder, kHuggingFaceConfigFile, [&](const std::string& path) {
      const std::string text = HuggingFaceConfigText(*config, TorchDtypeName(tensors));
      NewFile file(path);
      file.Write(text.data(), text.size());
      file.Finish();
    });
  }
  SyncFolder(folder);
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
