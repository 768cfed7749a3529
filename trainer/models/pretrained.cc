#include "trainer/models/pretrained.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/models/gpt2.h"
#include "trainer/models/huggingface_config.h"
#include "trainer/models/weight_files.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr char kGpt2Prefix[] = "transformer.";
constexpr char kGpt2Head[] = "lm_head.weight";
constexpr char kGpt2Embedding[] = "transformer.wte.weight";

[[noreturn]] void Refuse(const std::string& why) { throw TrainError(ExitCode::kBadInput, why); }

// What no tensor's shape tells: with another number of heads the same weights compute something
// else.
void CheckSameGpt2(const Gpt2Config& config, const std::string& folder) {
  const Gpt2Config saved = ReadHuggingFaceConfig(folder);
  const std::string file = folder + "/" + kHuggingFaceConfigFile;
  if (saved.n_head != config.n_head) {
    Refuse(file + ": n_head is " + std::to_string(saved.n_head) + "; model.n_head is " +
           std::to_string(config.n_head));
  }
  if (saved.layer_norm_epsilon != config.layer_norm_epsilon) {
    Refuse(file + ": layer_norm_epsilon differs from the model's");
  }
}

bool IsMask(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

// A tensor of a file.
struct Source {
  const SafetensorsFile& file;
  const SafetensorsFile::Tensor& tensor;
  std::string place;  // "model.safetensors: tensor fc1.weight"
};

void Fill(const at::Tensor& target, const Source& source) {
  const std::optional<at::ScalarType> type = ScalarTypeOf(source.tensor.dtype);
  if (!CanFill(type, target.scalar_type()) || target.sizes() != source.tensor.shape) {
    Refuse(source.place + " is " + DescribedTensor(source.tensor.dtype, source.tensor.shape) +
           " where the model has " +
           DescribedTensor(SafetensorsDtype(target.scalar_type()), target.sizes().vec()));
  }
  if (type == target.scalar_type() && target.is_cpu() && target.is_contiguous()) {
    source.file.Read(source.tensor, target.mutable_data_ptr());
    return;
  }
  const at::Tensor whole = at::empty(target.sizes(), *type);
  source.file.Read(source.tensor, whole.mutable_data_ptr());
  target.detach().copy_(whole);
}

// The model's tensors that are still to be filled.
class Wanted {
 public:
  explicit Wanted(const Model& model) : is_gpt2_(dynamic_cast<const Gpt2*>(&model) != nullptr) {
    for (const auto& item : model.named_parameters()) tensors_.emplace(item.key(), item.value());
    for (const auto& item : model.named_buffers()) tensors_.emplace(item.key(), item.value());
  }

  // `name` is the file's.
  void Take(const std::string& name, const Source& source) {
    const std::string known = is_gpt2_ && !tensors_.contains(name) ? kGpt2Prefix + name : name;
    const auto found = tensors_.find(known);
    if (found != tensors_.end()) {
      if (!filled_.insert(known).second) Refuse(source.place + " is there twice");
      Fill(found->second, source);
    } else if (is_gpt2_ && name == kGpt2Head) {
      const at::Tensor& embedding = tensors_.at(kGpt2Embedding);
      head_ = at::empty_like(embedding);
      head_place_ = source.place;
      Fill(head_, source);
    } else if (!is_gpt2_ || !IsMask(name)) {
      Refuse(source.place + " is none of the model's; these are the weights of another model");
    }
  }

  // When there are no more files.
  void Finish(const std::string& path) const {
    for (const auto& [name, tensor] : tensors_) {
      if (!filled_.contains(name)) Refuse(path + ": holds no tensor " + name);
    }
    if (head_.defined() && !at::equal(head_, tensors_.at(kGpt2Embedding))) {
      Refuse(head_place_ + " differs from the embedding; models whose head is not tied to it " +
             "cannot be loaded");
    }
  }

 private:
  bool is_gpt2_;
  std::map<std::string, at::Tensor> tensors_;
  std::set<std::string> filled_;
  at::Tensor head_;  // undefined: no file has one
  std::string head_place_;
};

// `write` makes a new file of the name it is given; then it gets its own.
template <class Write>
void Replace(const std::string& folder, const std::string& name, const Write& write) {
  const std::string temporary = folder + "/tmp-" + name;
  std::error_code ignored;
  fs::remove(temporary, ignored);  // what a killed export has left
  write(temporary);
  const std::string path = folder + "/" + name;
  if (rename(temporary.c_str(), path.c_str()) < 0) {
    throw TrainError(ExitCode::kIo, path + ": cannot be made: " + std::strerror(errno));
  }
}

// PyTorch's name: "float32".
std::string TorchDtypeName(const std::vector<NamedTensor>& state) {
  for (const NamedTensor& item : state) {
    if (item.tensor.scalar_type() == at::kHalf) return "float16";
    if (item.tensor.scalar_type() == at::kBFloat16) return "bfloat16";
  }
  return "float32";
}

}  // namespace

void InitWeights(Model& model, const std::string& path) {
  const at::NoGradGuard no_grad;
  const auto* gpt2 = dynamic_cast<const Gpt2*>(&model);
  std::error_code error;
  if (gpt2 != nullptr && fs::exists(path + "/" + kHuggingFaceConfigFile, error)) {
    CheckSameGpt2(gpt2->config(), path);
  }
  Wanted wanted(model);
  for (const std::string& name : WeightFiles(path)) {
    const SafetensorsFile file(name);
    for (const auto& [tensor_name, tensor] : file.tensors()) {
      wanted.Take(tensor_name, {file, tensor, name + ": tensor " + tensor_name});
    }
  }
  wanted.Finish(path);
}

void ExportHuggingFace(const std::vector<NamedTensor>& state, const ModelConfig& config,
                       const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw TrainError(ExitCode::kIo, folder + ": cannot be made: " + error.message());

  std::vector<at::Tensor> held;  // what `data` points into
  std::vector<TensorBytes> tensors;
  for (const NamedTensor& item : state) {
    held.push_back(item.tensor.detach().cpu().contiguous());
    tensors.push_back({item.name, SafetensorsDtype(held.back().scalar_type()),
                       held.back().sizes().vec(), held.back().const_data_ptr()});
  }
  Replace(folder, kWeightsFile, [&](const std::string& path) {
    // transformers wants to know which framework's layout this is.
    WriteSafetensors(path, tensors, {{"format", "pt"}});
  });
  Replace(folder, kHuggingFaceConfigFile, [&](const std::string& path) {
    const std::string text = HuggingFaceConfigText(config, TorchDtypeName(state));
    NewFile file(path);
    file.Write(text.data(), text.size());
    file.Finish();
  });
  SyncFolder(folder);
}

}  // namespace dslaunch
