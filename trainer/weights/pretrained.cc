#include "trainer/weights/pretrained.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/shards/shards.h"
#include "trainer/weights/config_json.h"
#include "trainer/weights/weight_files.h"
#include "trainer/weights/weight_shards.h"

namespace dslaunch {
namespace {

// A tensor of a file.
struct Source {
  std::shared_ptr<const SafetensorsFile> file;
  SafetensorsFile::Tensor tensor;
  std::string place;  // place in messages: "model.safetensors: tensor fc1.weight"
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
std::map<std::string, Source> FindSources(const Model& model, const ModelConfig& config,
                                          const std::string& path) {
  CheckConfigJson(config, path);
  const WeightNames names = config.family().Names();
  const std::map<std::string, at::Tensor> wanted = TensorsOf(model);
  std::map<std::string, Source> sources, copies;
  for (const std::string& file_name : WeightFiles(path)) {
    const auto file = std::make_shared<const SafetensorsFile>(file_name);
    for (const auto& [name, tensor] : file->tensors()) {
      const Source source = {file, tensor, file_name + ": tensor " + name};
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
    if (Same(source, sources.at(copy.tensor), wanted.at(copy.tensor).scalar_type())) continue;
    RefuseInput(source.place + " " + copy.difference);
  }
  return sources;
}

// Returns PyTorch's name, such as "float32", of the first 16-bit dtype, else of fp32.
std::string TorchDtypeName(const std::vector<at::ScalarType>& dtypes) {
  for (const at::ScalarType dtype : dtypes) {
    if (dtype == at::kHalf) return "float16";
    if (dtype == at::kBFloat16) return "bfloat16";
  }
  return "float32";
}

}  // namespace

void InitWeights(Model& model, const ModelConfig& config, const std::string& path) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> tensors = TensorsOf(model);
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : tensors) {
    parts.push_back(TensorPart::Whole(name, tensor.contiguous()));
  }
  InitWeights(model, config, parts, path);
  for (const TensorPart& part : parts) {
    const at::Tensor& tensor = tensors.at(part.name);
    if (!tensor.is_contiguous()) tensor.detach().copy_(part.tensor);
  }
}

void InitWeights(const Model& model, const ModelConfig& config,
                 const std::vector<TensorPart>& parts, const std::string& path) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, Source> sources = FindSources(model, config, path);
  for (const TensorPart& part : parts) Fill(part, sources.at(part.name));
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
