#include "trainer/foreign/distributed.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "base/text/sanitize.h"
#include "trainer/base/input_file.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/archive/torch_archive.h"
#include "trainer/foreign/archive_field.h"
#include "trainer/foreign/distributed_metadata.h"
#include "trainer/foreign/distributed_names.h"
#include "trainer/foreign/folder_names.h"
#include "trainer/foreign/plan_tensors.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr char kDataEnding[] = ".distcp";
// Names of the folders in which accelerate (SHARDED_STATE_DICT) saves the first model and the first
// optimizer.
constexpr char kModelFolder[] = "pytorch_model_fsdp_0", kOptimizerFolder[] = "optimizer_0";

bool HasParts(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const std::string& name) {
    return name == kDistributedMetadataFile || name.ends_with(kDataEnding);
  });
}

// Returns the folders that contain the parts of the checkpoint in `folder`; empty if `folder` is
// not a checkpoint.
std::vector<std::string> PartFolders(const std::string& folder) {
  const std::vector<std::string> names = FolderNames(folder);
  if (HasParts(names)) return {folder};
  std::vector<std::string> parts;
  for (const char* name : {kModelFolder, kOptimizerFolder}) {
    if (std::ranges::count(names, name) > 0) parts.push_back(folder + "/" + name);
  }
  return parts;
}

DistributedMetadata ReadMetadata(const std::string& folder) {
  const std::string path = folder + "/" + kDistributedMetadataFile;
  std::error_code error;
  if (fs::exists(folder + "/__0" + kDistributedMetadataFile, error)) {
    RefuseInput(
        folder + ": was saved without collectives, one " + kDistributedMetadataFile +
        " for each rank, which is not supported; load it and save it once with collectives");
  }
  if (!fs::exists(path, error)) {
    RefuseInput(folder + ": has no " + kDistributedMetadataFile +
                ", which is written last: the save was interrupted; use another checkpoint");
  }
  const InputFile file(path);
  if (file.bytes() > kMaxDistributedMetadataBytes) {
    RefuseInput(path + ": has " + std::to_string(file.bytes()) + " bytes; at most " +
                std::to_string(kMaxDistributedMetadataBytes) + " are read");
  }
  std::string bytes(file.bytes(), '\0');
  file.Read(0, bytes.data(), bytes.size());
  return ParseDistributedMetadata(bytes, path);
}

// One folder of the checkpoint, with its metadata.
struct Part {
  std::string folder;
  std::string prefix;  // prefix of the folder's file names, such as "optimizer_0/"
  DistributedMetadata metadata;
  std::vector<bool> exists;  // true for each of metadata.files that exists

  TorchArchive Open(const ArchivePlace& place) const {
    return TorchArchive(folder + "/" + metadata.files[place.file], place.begin, place.bytes);
  }
};

// The archive that contains a value or one block of a tensor.
struct Source {
  const Part* part = nullptr;
  ArchivePlace place;
  size_t key = 0;  // index of the value's key among the keys of all parts
  size_t block = 0;

  bool exists() const { return part->exists[place.file]; }
};

// A tensor whose archives were opened. `paths` and `stored` have an entry for each block.
struct OpenedTensor {
  const DistributedTensor* tensor = nullptr;
  std::string folder;
  std::vector<std::string> paths;
  std::vector<ArchivedTensor> stored;
};

class DistributedPlanner {
 public:
  DistributedPlanner(const std::string& folder, const std::string& prefix)
      : folder_(folder), prefix_(prefix) {}

  ForeignCheckpoint Plan() {
    plan_.kind = ForeignKind::kDistributed;
    plan_.program = "PyTorch distributed checkpoint";
    plan_.checkpoint.folder = folder_;
    for (const std::string& folder : PartFolders(folder_)) AddPart(folder);
    std::vector<DistributedKey> keys;
    for (const Part& part : parts_) AddKeys(part, keys);
    names_ = NamesOf(keys, prefix_, folder_);
    plan_.notes = names_.notes;
    ReadTensors();
    ReadProgress();
    return std::move(plan_);
  }

 private:
  Manifest& manifest() { return plan_.checkpoint.manifest; }

  void AddPart(const std::string& folder) {
    Part part;
    part.folder = folder;
    if (folder != folder_) part.prefix = fs::path(folder).filename().string() + "/";
    part.metadata = ReadMetadata(folder);
    for (const std::string& name : part.metadata.files) {
      std::error_code error;
      part.exists.push_back(fs::exists(folder + "/" + name, error));
      if (part.exists.back()) {
        AddFile(part.prefix + name, &plan_);
      } else {
        plan_.missing.push_back(part.prefix + name);
      }
    }
    parts_.push_back(std::move(part));
  }

  void AddKeys(const Part& part, std::vector<DistributedKey>& keys) {
    for (const DistributedTensor& tensor : part.metadata.tensors) {
      for (size_t block = 0; block < tensor.places.size(); ++block) {
        sources_.push_back({&part, tensor.places[block], keys.size(), block});
      }
      tensors_.emplace(keys.size(), OpenedTensor{&tensor, part.folder, {}, {}});
      const size_t last = tensor.path.empty() ? tensor.key.size() : tensor.path.back().size();
      keys.push_back({tensor.key, tensor.key.size() - last});
    }
    for (const DistributedValue& value : part.metadata.values) {
      sources_.push_back({&part, value.place, keys.size()});
      keys.push_back({value.key, 0, false});
    }
  }

  // Opens the archives of all tensors. Sequential reads are the fastest, so the order is that of
  // the files.
  void ReadTensors() {
    std::ranges::sort(sources_, {}, [](const Source& source) {
      return std::tuple(source.part, source.place.file, source.place.begin);
    });
    std::set<size_t> lost;  // keys of the tensors that lack a block
    for (const Source& source : sources_) {
      if (names_.names[source.key].empty()) continue;
      if (!source.exists()) lost.insert(source.key);
      if (!lost.contains(source.key)) OpenBlock(source);
    }
    std::set<std::string_view> known;
    for (const auto& [key, opened] : tensors_) {
      const std::string& name = names_.names[key];
      if (name.empty() || lost.contains(key)) continue;
      if (!known.insert(name).second) Fail(opened, "has the name of another tensor, " + name);
      AddTensor(name, opened);
    }
  }

  void OpenBlock(const Source& source) {
    OpenedTensor& opened = tensors_.at(source.key);
    const TorchArchive archive = source.part->Open(source.place);
    const std::optional<ArchivedTensor> stored = archive.Tensor(archive.root());
    const std::string where = archive.path() + " at byte " + std::to_string(source.place.begin);
    if (!stored) Fail(opened, "is not a tensor in " + where);
    if (stored->shape != opened.tensor->blocks[source.block].sizes ||
        stored->dtype != opened.tensor->dtype) {
      Fail(opened,
           "has another shape or dtype in " + where + " than in " + kDistributedMetadataFile);
    }
    opened.paths.resize(opened.tensor->blocks.size());
    opened.stored.resize(opened.tensor->blocks.size());
    opened.paths[source.block] = archive.path();
    opened.stored[source.block] = *stored;
  }

  void AddTensor(const std::string& name, const OpenedTensor& opened) {
    const DistributedTensor& tensor = *opened.tensor;
    BlockSlices slices = SlicesOf(tensor.shape, tensor.blocks);
    if (!slices.problem.empty()) Fail(opened, slices.problem);
    TensorRecord record = {name, tensor.dtype, tensor.shape, {}};
    const uint64_t width = DtypeBytes(tensor.dtype).value();
    for (const BlockSlice& slice : slices.slices) {
      const ArchivedTensor& stored = opened.stored[slice.block];
      if (!stored.stride.empty() && tensor.blocks.size() > 1) {
        Fail(opened,
             "was saved in parts whose dimensions are not in order, which is not supported; load "
             "it and save it contiguous");
      }
      const uint64_t begin = stored.begin + static_cast<uint64_t>(slice.in_block) * width;
      record.slices.push_back(
          {slice.shard, AddPlace({opened.paths[slice.block], begin, stored.stride}, &plan_)});
    }
    manifest().tensors.push_back(std::move(record));
  }

  // Reads the optimizer's numbers of updates and the run's step.
  void ReadProgress() {
    const std::set<size_t> updates(names_.updates.begin(), names_.updates.end());
    std::set<int64_t> counts;
    for (const Source& source : sources_) {
      const bool is_step = source.key == names_.step;
      if (!source.exists() || !(is_step || updates.contains(source.key))) continue;
      const TorchArchive archive = source.part->Open(source.place);
      const ArchiveField number(archive);
      if (!is_step) {
        counts.insert(number.Updates());
      } else if (number.FindNumber()) {
        manifest().position.step = number.Updates();
      }
    }
    if (counts.empty()) return;
    manifest().optimizer_updates = *counts.rbegin();
    manifest().scheduled_updates = *counts.rbegin();
    if (!names_.step) manifest().position.step = *counts.rbegin();
    if (counts.size() > 1) {
      plan_.notes.push_back("parameters have from " + std::to_string(*counts.begin()) + " to " +
                            std::to_string(*counts.rbegin()) +
                            " updates; the largest number is used");
    }
  }

  [[noreturn]] static void Fail(const OpenedTensor& opened, const std::string& problem) {
    RefuseInput(opened.folder + "/" + kDistributedMetadataFile + ": " + Quoted(opened.tensor->key) +
                " " + problem);
  }

  const std::string& folder_;
  const std::string& prefix_;
  ForeignCheckpoint plan_;
  std::vector<Part> parts_;
  DistributedNames names_;
  std::vector<Source> sources_;
  std::map<size_t, OpenedTensor> tensors_;  // tensors by the index of their key among all keys
};

}  // namespace

bool IsDistributedFolder(const std::vector<std::string>& names) {
  return HasParts(names) || std::ranges::count(names, kModelFolder) > 0;
}

ForeignCheckpoint PlanDistributed(const std::string& folder, const std::string& prefix) {
  return DistributedPlanner(folder, prefix).Plan();
}

}  // namespace dslaunch
