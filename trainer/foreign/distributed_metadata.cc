#include "trainer/foreign/distributed_metadata.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "base/pickle/pickle.h"
#include "base/pickle/pickle_writer.h"
#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/foreign/archive/torch_archive.h"
#include "trainer/foreign/archive/torch_dtype.h"
#include "trainer/weights/weight_files.h"

namespace dslaunch {
namespace {

constexpr PickleLimits kLimits = {.bytes = kMaxDistributedMetadataBytes, .values = 30'000'000};
constexpr char kMetadataModule[] = "torch.distributed.checkpoint.metadata";
constexpr char kCheckpointVersion[] = "1.0.0";  // format version that PyTorch 2.11 writes

// Returns whether `value` is an object of the class `name`. Any module of PyTorch matches, because
// the class was in another module before PyTorch 2.0.
bool IsOf(const PickleValue& value, std::string_view name) {
  const std::string_view global = value.global();
  return value.type() == PickleType::kObject && global.starts_with("torch.") &&
         global.ends_with(name) && global[global.size() - name.size() - 1] == '.';
}

// Returns the items of `path`, a tuple of strings and list indices, as strings. Empty if the items
// joined by dots are not `key`.
std::vector<std::string> PathOf(const PickleValue& path, std::string_view key) {
  std::vector<std::string> keys;
  std::string joined;
  if (path.type() != PickleType::kTuple) return {};
  for (size_t i = 0; i < path.size() && joined.size() <= key.size(); ++i) {
    const auto index = path.item(i).Int();
    keys.emplace_back(index ? std::to_string(*index) : path.item(i).String().value_or(""));
    joined += (i > 0 ? "." : "") + keys.back();
  }
  if (joined != key) keys.clear();
  return keys;
}

class MetadataParser {
 public:
  MetadataParser(const Pickle& pickle, const std::string& source)
      : root_(pickle.root()), source_(source) {}

  DistributedMetadata Parse() {
    if (!IsOf(root_, "Metadata")) Fail("is not the metadata of a PyTorch distributed checkpoint");
    ReadPlaces();
    const std::optional<PickleValue> paths = root_.Find("planner_data");
    if (paths && paths->type() == PickleType::kDict) ReadPaths(*paths);
    ReadEntries(Required(root_, "state_dict_metadata"));
    return std::move(metadata_);
  }

 private:
  // The key of a tensor or value, and the offset of a tensor's block in each dimension.
  using Index = std::pair<std::string_view, std::vector<int64_t>>;

  [[noreturn]] void Fail(const std::string& problem) const {
    RefuseInput(source_ + ": " + problem);
  }
  [[noreturn]] void Fail(std::string_view key, const std::string& problem) const {
    Fail(Quoted(key) + " " + problem);
  }

  PickleValue Required(const PickleValue& object, std::string_view key) const {
    const std::optional<PickleValue> value = object.Find(key);
    if (!value || value->type() != PickleType::kDict) {
      Fail("its " + std::string(key) + " is not a dict");
    }
    return *value;
  }

  // Reads the file and offset of the archive of each value and block.
  void ReadPlaces() {
    const PickleValue storage = Required(root_, "storage_data");
    for (size_t i = 0; i < storage.size(); ++i) {
      const auto [index, info] = storage.entry(i);
      const std::optional<PickleValue> name = index.Find("fqn");
      const auto key = name ? name->String() : std::nullopt;
      if (!IsOf(index, "MetadataIndex") || !key) Fail("its storage_data has a key of another kind");
      const std::optional<PickleValue> offset = index.Find("offset");
      std::optional<std::vector<int64_t>> first = std::vector<int64_t>{};
      if (offset && !offset->IsNone()) first = SizesIn(*offset);
      if (!first) Fail(*key, "is stored at an offset that is not a list of sizes");
      if (!places_.emplace(Index(*key, *std::move(first)), ReadPlace(*key, info)).second) {
        Fail(*key, "is stored twice at the same offset");
      }
    }
    CheckApart();
  }

  ArchivePlace ReadPlace(std::string_view key, const PickleValue& info) {
    const std::optional<PickleValue> transforms = info.Find("transform_descriptors");
    if (transforms && !transforms->IsNone() && transforms->size() > 0) {
      Fail(key, "was transformed as it was saved (" +
                    Truncate(transforms->item(0).String().value_or("?")) +
                    "), which is not supported; load and save it once without extensions");
    }
    const auto path = info.Find("relative_path");
    const auto offset = info.Find("offset"), length = info.Find("length");
    const auto file = path ? path->String() : std::nullopt;
    const auto begin = offset ? offset->Int() : std::nullopt;
    const auto bytes = length ? length->Int() : std::nullopt;
    if (!file || !begin || !bytes) Fail(key, "has no relative_path, offset and length");
    if (!IsPlainFileName(std::string(*file))) {
      Fail(key,
           "is stored in " + Quoted(*file) + ", which is not the name of a file in the folder");
    }
    int64_t end = 0;
    if (*begin < 0 || *bytes <= 0 || __builtin_add_overflow(*begin, *bytes, &end)) {
      Fail(key, "is stored at an impossible place: " + std::to_string(*bytes) + " bytes at " +
                    std::to_string(*begin));
    }
    const auto [known, added] = files_.emplace(*file, metadata_.files.size());
    if (added) metadata_.files.emplace_back(*file);
    return {known->second, static_cast<uint64_t>(*begin), static_cast<uint64_t>(*bytes)};
  }

  // Throws if archives overlap. Otherwise a small file could describe tensors that are larger than
  // all files together, and the same bytes would be read many times.
  void CheckApart() const {
    std::vector<const std::pair<const Index, ArchivePlace>*> order;
    for (const auto& item : places_) order.push_back(&item);
    std::ranges::sort(order, {}, [](const auto* item) {
      return std::tuple(item->second.file, item->second.begin);
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const ArchivePlace &before = order[i - 1]->second, &place = order[i]->second;
      if (place.file == before.file && place.begin < before.begin + before.bytes) {
        Fail(order[i]->first.first, "is stored in bytes of " + metadata_.files[place.file] +
                                        " that " + Quoted(order[i - 1]->first.first) + " has too");
      }
    }
  }

  void ReadPaths(const PickleValue& paths) {
    for (size_t i = 0; i < paths.size(); ++i) {
      const auto [name, path] = paths.entry(i);
      if (const auto key = name.String()) paths_.emplace(*key, path);
    }
  }

  void ReadEntries(const PickleValue& entries) {
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto [name, entry] = entries.entry(i);
      const auto key = name.String();
      if (!key) Fail("its state_dict_metadata has a key that is not a text");
      if (IsOf(entry, "TensorStorageMetadata")) {
        metadata_.tensors.push_back(ReadTensor(*key, entry));
      } else if (IsOf(entry, "BytesStorageMetadata")) {
        metadata_.values.push_back({std::string(*key), PlaceOf(*key, {})});
      } else {
        Fail(*key, "is neither a tensor nor an object");
      }
    }
  }

  DistributedTensor ReadTensor(std::string_view key, const PickleValue& entry) const {
    DistributedTensor tensor;
    tensor.key = key;
    if (const auto path = paths_.find(key); path != paths_.end()) {
      tensor.path = PathOf(path->second, key);
    }
    tensor.dtype = ReadDtype(key, entry);
    const auto shape = SizesIn(entry.Find("size"));
    const auto chunks = entry.Find("chunks");
    if (!shape || !chunks || chunks->type() != PickleType::kList) {
      Fail(key, "has no size or no list of chunks");
    }
    tensor.shape = *shape;
    for (size_t i = 0; i < chunks->size(); ++i) {
      const PickleValue chunk = chunks->item(i);
      const auto offsets = SizesIn(chunk.Find("offsets")), sizes = SizesIn(chunk.Find("sizes"));
      if (!offsets || !sizes) Fail(key, "has a chunk without offsets and sizes");
      if (std::ranges::count(*sizes, 0) > 0) continue;
      tensor.places.push_back(PlaceOf(key, *offsets));
      tensor.blocks.push_back({*offsets, *sizes});
    }
    return tensor;
  }

  // Returns the tensor's dtype, which is the first item of the state of its properties.
  std::string ReadDtype(std::string_view key, const PickleValue& entry) const {
    const auto properties = entry.Find("properties");
    const auto state = properties ? properties->state() : std::nullopt;
    if (!state || state->type() != PickleType::kTuple || state->size() == 0) {
      Fail(key, "has no properties with a dtype");
    }
    const std::string_view name = state->item(0).global();
    const TorchDtype* dtype = FindTorchDtype(&TorchDtype::dtype, name);
    if (dtype == nullptr) Fail(key, "has the dtype " + Quoted(name) + ", which is not supported");
    return std::string(dtype->name);
  }

  ArchivePlace PlaceOf(std::string_view key, const std::vector<int64_t>& first) const {
    const auto found = places_.find(Index(key, first));
    if (found == places_.end()) Fail(key, "has a part without a place in storage_data");
    return found->second;
  }

  const PickleValue root_;
  const std::string& source_;
  DistributedMetadata metadata_;
  std::map<std::string_view, size_t> files_;  // indices in metadata_.files by name
  std::map<Index, ArchivePlace> places_;
  std::unordered_map<std::string_view, PickleValue> paths_;
};

// Writes objects as Python pickles them: first the class without arguments, then the members as the
// state.
class MetadataWriter {
 public:
  explicit MetadataWriter(const DistributedMetadata& metadata) : metadata_(metadata) {}

  std::string Write() {
    BeginObject(kMetadataModule, "Metadata");
    out_.String("state_dict_metadata");
    out_.BeginDict();
    for (const DistributedTensor& tensor : metadata_.tensors) {
      out_.String(tensor.key);
      WriteTensor(tensor);
    }
    out_.EndDict();
    out_.String("planner_data");
    out_.BeginDict();
    for (const DistributedTensor& tensor : metadata_.tensors) {
      out_.String(tensor.key);
      out_.BeginTuple();
      for (const std::string& key : tensor.path) out_.String(key);
      out_.EndTuple();
    }
    out_.EndDict();
    out_.String("storage_data");
    out_.BeginDict();
    for (const DistributedTensor& tensor : metadata_.tensors) WritePlaces(tensor);
    out_.EndDict();
    out_.String("storage_meta");
    out_.None();
    out_.String("version");
    out_.String(kCheckpointVersion);
    EndObject();
    return out_.Take();
  }

 private:
  void BeginObject(std::string_view module, std::string_view name) {
    out_.Global(module, name);
    out_.BeginTuple();
    out_.EndTuple();
    out_.NewObject();
    out_.BeginDict();
  }
  void EndObject() {
    out_.EndDict();
    out_.Build();
  }

  void WriteTensor(const DistributedTensor& tensor) {
    BeginObject(kMetadataModule, "TensorStorageMetadata");
    out_.String("properties");
    WriteProperties(tensor.dtype);
    out_.String("size");
    WriteSizes(tensor.shape);
    out_.String("chunks");
    out_.BeginList();
    for (const TensorBlock& block : tensor.blocks) {
      BeginObject(kMetadataModule, "ChunkStorageMetadata");
      out_.String("offsets");
      WriteSizes(block.offsets);
      out_.String("sizes");
      WriteSizes(block.sizes);
      EndObject();
    }
    out_.EndList();
    EndObject();
  }

  // Writes the state of TensorProperties as a tuple: dtype, layout, requires_grad, memory format
  // (the value of an enumeration) and pin_memory.
  void WriteProperties(const std::string& dtype) {
    out_.Global(kMetadataModule, "TensorProperties");
    out_.BeginTuple();
    out_.EndTuple();
    out_.NewObject();
    out_.BeginTuple();
    const std::string_view name = FindTorchDtype(&TorchDtype::name, dtype)->dtype;
    const size_t dot = name.rfind('.');
    out_.Global(name.substr(0, dot), name.substr(dot + 1));
    out_.Global("torch.serialization", "_get_layout");
    out_.BeginTuple();
    out_.String("torch.strided");
    out_.EndTuple();
    out_.Reduce();
    out_.Bool(false);
    out_.Global(kMetadataModule, "_MEM_FORMAT_ENCODING");
    out_.BeginTuple();
    out_.Int(0);
    out_.EndTuple();
    out_.Reduce();
    out_.Bool(false);
    out_.EndTuple();
    out_.Build();
  }

  void WriteSizes(const std::vector<int64_t>& sizes) {
    out_.Global("torch", "Size");
    out_.BeginTuple();
    out_.BeginTuple();
    for (const int64_t size : sizes) out_.Int(size);
    out_.EndTuple();
    out_.EndTuple();
    out_.Reduce();
  }

  void WritePlaces(const DistributedTensor& tensor) {
    for (size_t i = 0; i < tensor.blocks.size(); ++i) {
      BeginObject(kMetadataModule, "MetadataIndex");
      out_.String("fqn");
      out_.String(tensor.key);
      out_.String("offset");
      WriteSizes(tensor.blocks[i].offsets);
      out_.String("index");
      out_.Int(static_cast<int64_t>(i));
      EndObject();
      const ArchivePlace& place = tensor.places[i];
      BeginObject("torch.distributed.checkpoint.filesystem", "_StorageInfo");
      out_.String("relative_path");
      out_.String(metadata_.files[place.file]);
      out_.String("offset");
      out_.Int(static_cast<int64_t>(place.begin));
      out_.String("length");
      out_.Int(static_cast<int64_t>(place.bytes));
      EndObject();
    }
  }

  const DistributedMetadata& metadata_;
  PickleWriter out_;
};

}  // namespace

std::string FormatDistributedMetadata(const DistributedMetadata& metadata) {
  return MetadataWriter(metadata).Write();
}

DistributedMetadata ParseDistributedMetadata(std::string_view bytes, const std::string& source) {
  const Result<Pickle> pickle = Pickle::Read(bytes, source, kLimits);
  if (!pickle) RefuseInput(pickle.error().message);
  return MetadataParser(*pickle, source).Parse();
}

}  // namespace dslaunch
