#include "trainer/foreign/state_dict.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/archive/torch_archive.h"
#include "trainer/foreign/folder_names.h"
#include "trainer/foreign/plan_tensors.h"
#include "trainer/weights/weight_files.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr char kSafetensors[] = ".safetensors";
constexpr const char* kEndings[] = {kSafetensors, ".bin", ".pt", ".pth", ".ckpt"};
// Names of files in a folder, in order of preference: the first that exists is read. A file whose
// name ends in kIndex lists other files.
constexpr char kIndex[] = ".index.json";
constexpr const char* kFolderFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json",
                                        "pytorch_model_fsdp.bin"};
constexpr size_t kMaxShownKeys = 20;

// Returns the first of kFolderFiles that is in `names`; empty if `names` has none of them.
std::string FolderFile(const std::vector<std::string>& names) {
  for (const char* file : kFolderFiles) {
    if (std::ranges::count(names, file) > 0) return file;
  }
  return "";
}

size_t TensorsOf(const TorchArchive& archive, const PickleValue& dict) {
  size_t tensors = 0;
  for (size_t i = 0; i < dict.size(); ++i) {
    if (archive.Tensor(dict.entry(i).second)) ++tensors;
  }
  return tensors;
}

// Returns the keys of `dict` as a text: "epoch, state_dict (a dict of 291 tensors)". Shows at most
// kMaxShownKeys keys.
std::string KeysText(const TorchArchive& archive, const PickleValue& dict) {
  std::string text;
  for (size_t i = 0; i < dict.size(); ++i) {
    const auto [key, value] = dict.entry(i);
    text += text.empty() ? "" : ", ";
    if (i == kMaxShownKeys) return text + "...";
    text += Truncate(key.String().value_or("?"));
    if (value.type() != PickleType::kDict) continue;
    text += " (a dict of " + Count(TensorsOf(archive, value), "tensor") + ")";
  }
  return text;
}

class StateDictPlanner {
 public:
  StateDictPlanner(const std::string& path, const std::string& key) : path_(path), key_(key) {
    plan_.kind = ForeignKind::kStateDict;
    plan_.program = "PyTorch state dict";
  }

  ForeignCheckpoint Plan() {
    std::error_code error;
    if (fs::is_directory(path_, error)) {
      plan_.checkpoint.folder = path_;
      ReadFolder(FolderFile(FolderNames(path_)));
    } else {
      const fs::path path(path_);
      plan_.checkpoint.folder = path.has_parent_path() ? path.parent_path().string() : ".";
      ReadFile(path.filename());
    }
    return std::move(plan_);
  }

 private:
  void ReadFolder(const std::string& name) {
    if (name.empty()) RefuseInput(path_ + ": has no file of weights");
    if (!name.ends_with(kIndex)) return ReadFile(name);
    const std::map<std::string, std::string> index = ReadWeightIndex(path_ + "/" + name);
    std::map<std::string, bool> exists;  // true for each file that exists, by name
    for (const auto& [tensor, file] : index) {
      std::error_code error;
      const auto [known, added] = exists.emplace(file, fs::exists(path_ + "/" + file, error));
      if (!added) continue;
      if (known->second) {
        ReadFile(file);
      } else {
        plan_.missing.push_back(file);
      }
    }
    for (const auto& [tensor, file] : index) {
      if (exists.at(file) && !files_.contains(tensor)) {
        plan_.missing.push_back(Truncate(tensor) + " in " + file);
      }
    }
  }

  void ReadFile(const std::string& name) {
    const std::string path = plan_.checkpoint.folder + "/" + name;
    if (name.ends_with(kSafetensors)) {
      const SafetensorsFile file(path);
      for (const auto& [key, tensor] : file.tensors()) {
        Add(key, name, {tensor.dtype, tensor.shape, {}, tensor.begin, tensor.end - tensor.begin});
      }
    } else {
      ReadArchive(name, TorchArchive(path));
    }
    AddFile(name, &plan_);
  }

  void ReadArchive(const std::string& name, const TorchArchive& archive) {
    const PickleValue dict = DictOf(archive);
    std::vector<std::string> others;
    for (size_t i = 0; i < dict.size(); ++i) {
      const auto [key, value] = dict.entry(i);
      const auto tensor = key.String() ? archive.Tensor(value) : std::nullopt;
      if (tensor) {
        Add(std::string(*key.String()), name, *tensor);
      } else {
        const std::string_view global = value.global();
        others.push_back(Truncate(key.String().value_or("a key that is not a text")) +
                         (global.empty() ? "" : " (" + Truncate(global) + ", which is not run)"));
      }
    }
    if (others.size() == dict.size()) {
      RefuseInput(archive.path() + ": has no tensors at " +
                  (key_.empty() ? "its root" : Quoted(key_)) +
                  "; choose one of its dicts with --key: " + KeysText(archive, dict));
    }
    if (others.empty()) return;
    plan_.notes.push_back(
        Count(others.size(), "value") + " of " + name +
        (others.size() == 1 ? " is not a tensor and was" : " are not tensors and were") +
        " not read, such as " + others.front());
  }

  // Returns the dict at key_, or the root if key_ is empty. Throws if the value there is not a
  // dict.
  PickleValue DictOf(const TorchArchive& archive) const {
    const PickleValue root = archive.root();
    if (root.type() == PickleType::kObject && !archive.Tensor(root)) {
      RefuseInput(archive.path() + ": is an object of " + Truncate(root.global()) +
                  ", not a dict of tensors; save its state_dict()");
    }
    if (root.type() != PickleType::kDict)
      RefuseInput(archive.path() + ": is not a dict of tensors");
    if (key_.empty()) return root;
    const std::optional<PickleValue> inner = root.Find(key_);
    if (!inner || inner->type() != PickleType::kDict) {
      RefuseInput(archive.path() + ": has no dict " + Quoted(key_) + "; it has " +
                  KeysText(archive, root));
    }
    return *inner;
  }

  // Adds a tensor, or an alias if an earlier tensor has the same elements. Throws if the key is in
  // two files.
  void Add(const std::string& key, const std::string& file, const ArchivedTensor& tensor) {
    const auto [known, added] = files_.emplace(key, file);
    if (!added) {
      RefuseInput(plan_.checkpoint.folder + "/" + file + ": tensor " + Quoted(key) + " is in " +
                  known->second + " too");
    }
    if (tensor.bytes > 0) {
      const auto [first, is_first] = first_names_.emplace(
          std::tuple(file, tensor.begin, tensor.dtype, tensor.shape, tensor.stride), key);
      if (!is_first) {
        plan_.aliases.emplace(key, first->second);
        return;
      }
    }
    AddWhole(key, plan_.checkpoint.folder + "/" + file, tensor, &plan_);
  }

  const std::string& path_;
  const std::string& key_;
  ForeignCheckpoint plan_;
  std::map<std::string, std::string> files_;  // name of the file that contains each key
  using Elements =
      std::tuple<std::string, uint64_t, std::string, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Elements, std::string> first_names_;  // first key whose tensor has these elements
};

}  // namespace

bool IsStateDictFolder(const std::vector<std::string>& names) { return !FolderFile(names).empty(); }

bool IsStateDictFile(const std::string& path) {
  return std::ranges::count(kEndings, fs::path(path).extension()) > 0 || IsTorchArchive(path);
}

ForeignCheckpoint PlanStateDict(const std::string& path, const std::string& key) {
  return StateDictPlanner(path, key).Plan();
}

}  // namespace dslaunch
