#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/json/json_object.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "dslaunch checkpoint 1";
// Format of a manifest with slices that are not contiguous.
constexpr char kFormatWithCuts[] = "dslaunch checkpoint 2";
constexpr int64_t kMaxWorldSize = 1 << 24;
// Maximum number of steps, samples and saves. A double represents it exactly, and adding 1 does not
// overflow.
constexpr int64_t kMaxCount = int64_t{1} << 53;
constexpr size_t kMaxFileNameBytes = 255;
constexpr size_t kMaxTensorNameBytes = 4096;
constexpr size_t kMaxWordBytes = 128;  // maximum length of names such as "AdamW" or "bf16"
constexpr size_t kMaxIdBytes = 1024;
constexpr size_t kMaxDims = 64;

std::string Hex(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

std::string FirstLine(const std::string& rest) {
  return "{\"crc32\":\"" + Hex(Crc32(rest.data(), rest.size())) + "\",\n";
}

bool IsPlainWord(const std::string& word) {
  return std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// Returns whether dslaunch could have given a file this name. Other names may lead out of the
// folder, so they are refused.
bool IsOwnFileName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxFileNameBytes && name.front() != '.' &&
         name != kManifestFile && IsPlainWord(name);
}

template <class T>
T Required(std::optional<T> value, const JsonObject& object, const char* key) {
  if (!value) object.Fail(key, "is missing");
  return *std::move(value);
}

int64_t Count(JsonObject& object, const char* key) {
  return Required(object.Int(key, 0, kMaxCount), object, key);
}

int64_t CountOr(JsonObject& object, const char* key, int64_t other) {
  return object.Int(key, 0, kMaxCount).value_or(other);
}

// Reads a short text that is safe to print; "" if the key is missing.
std::string Word(JsonObject& object, const char* key) {
  std::string word = object.String(key).value_or("");
  if (word.size() > kMaxWordBytes || !IsPlainWord(word)) {
    object.Fail(key, "is not a plain word of at most " + std::to_string(kMaxWordBytes) + " bytes");
  }
  return word;
}

std::string Id(JsonObject& object, const char* key) {
  std::string id = Required(object.String(key), object, key);
  if (id.size() > kMaxIdBytes) {
    object.Fail(key, "is longer than " + std::to_string(kMaxIdBytes) + " bytes");
  }
  return id;
}

// Calls read(object) for each item of the JSON list at `key`.
template <class Read>
void ForEach(const nlohmann::json& parent, const std::string& source, const std::string& path,
             const char* key, Read read) {
  const auto list = parent.find(key);
  if (list == parent.end() || !list->is_array()) {
    JsonObject(parent, source, path).Fail(key, "is not a list");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const nlohmann::json& item = (*list)[i];
    read(item, JsonObject(item, source, path + key + "[" + std::to_string(i) + "]"));
  }
}

FileRecord ParseFile(JsonObject object) {
  FileRecord file;
  file.name = Required(object.String("name"), object, "name");
  if (!IsOwnFileName(file.name)) object.Fail("name", "is not a plain file name");
  file.sum.bytes = static_cast<uint64_t>(Required(object.Int("bytes", 0), object, "bytes"));
  file.sum.crc32 =
      static_cast<uint32_t>(Required(object.Int("crc32", 0, UINT32_MAX), object, "crc32"));
  return file;
}

// Appends the items of the JSON list "files" to `files`. Returns the sizes of the files in bytes,
// by name.
std::map<std::string, uint64_t> ParseFiles(const nlohmann::json& json, const std::string& source,
                                           std::vector<FileRecord>& files) {
  std::map<std::string, uint64_t> sizes;
  int64_t total_bytes = 0;
  ForEach(json, source, "", "files", [&](const nlohmann::json&, JsonObject item) {
    files.push_back(ParseFile(item));
    const auto& [name, sum] = files.back();
    if (!sizes.emplace(name, sum.bytes).second) item.Fail("name", "is given twice");
    if (__builtin_add_overflow(total_bytes, static_cast<int64_t>(sum.bytes), &total_bytes)) {
      item.Fail("bytes", "is too large");
    }
  });
  return sizes;
}

// Reads a slice of a tensor with `elements` elements. `with_cuts` is true if the manifest's format
// allows slices that are not contiguous.
Shard ParseShard(JsonObject& item, int64_t elements, bool with_cuts) {
  Shard shard = Shard::Whole(elements);
  shard.start = Required(item.Int("start", 0), item, "start");
  shard.stop = Required(item.Int("end", 0), item, "end");
  const std::optional<int64_t> row = with_cuts ? item.Int("row", 1) : std::nullopt;
  if (!row) return shard;
  shard.row = *row;
  shard.offset = Required(item.Int("offset", 0), item, "offset");
  shard.pitch = Required(item.Int("pitch", 1), item, "pitch");
  if (shard.row >= shard.pitch) item.Fail("row", "is not smaller than pitch");
  return shard;
}

// Reads the description of a tensor. `files` has the sizes of the files in bytes, by name.
TensorRecord ParseTensor(const nlohmann::json& json, JsonObject object, const std::string& source,
                         const std::map<std::string, uint64_t>& files, bool with_cuts) {
  TensorRecord tensor;
  tensor.name = Required(object.String("name"), object, "name");
  if (tensor.name.size() > kMaxTensorNameBytes) {
    object.Fail("name", "is longer than " + std::to_string(kMaxTensorNameBytes) + " bytes");
  }
  tensor.dtype = Required(object.String("dtype"), object, "dtype");
  const std::optional<size_t> width = DtypeBytes(tensor.dtype);
  if (!width) object.Fail("dtype", "is unknown: " + Truncate(tensor.dtype, kMaxWordBytes));
  const auto shape = json.find("shape");
  const auto is_dim = [](const nlohmann::json& dim) {
    return dim.is_number_unsigned() && dim.get<uint64_t>() <= INT64_MAX;
  };
  if (shape == json.end() || !shape->is_array() ||
      !std::all_of(shape->begin(), shape->end(), is_dim)) {
    object.Fail("shape", "is not a list of sizes");
  }
  if (shape->size() > kMaxDims) {
    object.Fail("shape", "has more than " + std::to_string(kMaxDims) + " dimensions");
  }
  tensor.shape = shape->get<std::vector<int64_t>>();
  const std::optional<int64_t> count = NumElements(tensor.shape);
  if (!count) object.Fail("shape", "is too large");
  ShardCoverage coverage(*count);
  std::set<std::string> used;
  ForEach(json, source, "tensor " + Truncate(tensor.name) + ": ", "slices",
          [&](const nlohmann::json&, JsonObject item) {
            TensorSlice slice;
            slice.shard = ParseShard(item, *count, with_cuts);
            slice.file = Required(item.String("file"), item, "file");
            const auto file = files.find(slice.file);
            if (file == files.end()) item.Fail("file", "is not among the files");
            // With two slices of a tensor in one file, the same bytes could stand for a tensor that
            // is larger than all files, so they are refused.
            if (!used.insert(slice.file).second) item.Fail("file", "has two slices of the tensor");
            if (!coverage.Add(slice.shard)) item.Fail("start", "leaves a hole or an overlap");
            if (static_cast<uint64_t>(slice.shard.elements()) > file->second / *width) {
              item.Fail("end", "is beyond the end of the file");
            }
            tensor.slices.push_back(std::move(slice));
          });
  if (!coverage.complete()) object.Fail("slices", "do not cover the tensor");
  return tensor;
}

LossScalerState ParseLossScaler(JsonObject object) {
  LossScalerState state;
  state.scale =
      Required(object.Number("scale", std::numeric_limits<double>::min()), object, "scale");
  state.iteration = Count(object, "iteration");
  state.last_overflow = Required(object.Int("last_overflow", -1), object, "last_overflow");
  state.hysteresis = Count(object, "hysteresis");
  return state;
}

std::map<std::string, std::string> ParseClientState(const nlohmann::json& manifest,
                                                    const std::string& source) {
  std::map<std::string, std::string> texts;
  const auto state = manifest.find("client_state");
  if (state == manifest.end()) return texts;
  JsonObject object(*state, source, "client_state");
  for (const auto& [key, value] : state->items()) {
    texts[key] = Required(object.String(key.c_str()), object, key.c_str());
  }
  return texts;
}

}  // namespace

bool IsOfModel(const TensorRecord& tensor) {
  return !IsOfOptimizer(tensor.name) && !tensor.name.starts_with(kGeneratorPrefix) &&
         !tensor.name.starts_with(kRankPrefix);
}

bool IsOfOptimizer(const std::string& name) { return name.starts_with(kOptimizerPrefix); }

std::string NameOfState(const std::string& kind, const std::string& parameter) {
  return kOptimizerPrefix + kind + "/" + parameter;
}

std::optional<StateName> SplitNameOfState(const std::string& name) {
  if (!IsOfOptimizer(name)) return std::nullopt;
  const size_t begin = std::size(kOptimizerPrefix) - 1;
  const size_t slash = name.find('/', begin);
  if (slash == std::string::npos) return std::nullopt;
  return StateName{name.substr(begin, slash - begin), name.substr(slash + 1)};
}

std::string FormatManifest(const Manifest& m) {
  Json files = Json::array();
  for (const FileRecord& file : m.files) {
    files.push_back({{"name", file.name}, {"bytes", file.sum.bytes}, {"crc32", file.sum.crc32}});
  }
  Json tensors = Json::array();
  bool with_cuts = false;
  for (const TensorRecord& tensor : m.tensors) {
    Json slices = Json::array();
    for (const auto& [shard, file] : tensor.slices) {
      Json slice = {{"start", shard.start}, {"end", shard.stop}, {"file", file}};
      if (!shard.contiguous()) {
        with_cuts = true;
        slice["offset"] = shard.offset;
        slice["row"] = shard.row;
        slice["pitch"] = shard.pitch;
      }
      slices.push_back(std::move(slice));
    }
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"slices", std::move(slices)}});
  }
  Json json = {{"format", with_cuts ? kFormatWithCuts : kFormat},
               {"serial", m.serial},
               {"run_id", m.run_id},
               {"job_id", m.job_id},
               {"started_by", m.started_by},
               {"step", m.position.step},
               {"epoch", m.position.epoch},
               {"samples_in_epoch", m.position.samples_in_epoch},
               {"optimizer_updates", m.optimizer_updates},
               {"optimizer", m.optimizer},
               {"loss_scaler",
                {{"scale", m.loss_scaler.scale},
                 {"iteration", m.loss_scaler.iteration},
                 {"last_overflow", m.loss_scaler.last_overflow},
                 {"hysteresis", m.loss_scaler.hysteresis}}},
               {"seed", m.seed},
               {"train_samples", m.train_samples},
               {"samples_seen", m.samples_seen},
               {"world_size", m.world_size},
               {"train_batch_size", m.train_batch_size},
               {"saved_ms", m.saved_ms},
               {"micro_steps", m.micro_steps},
               {"skipped_steps", m.skipped_steps},
               {"scheduled_updates", m.scheduled_updates},
               {"learning_rates", m.learning_rates},
               {"next_rates", m.next_rates},
               {"zero_stage", m.zero_stage},
               {"pipeline_stages", m.pipeline_stages},
               {"dtype", m.dtype},
               {"model", m.model},
               {"client_state", m.client_state},
               {"files", std::move(files)},
               {"tensors", std::move(tensors)}};
  if (!m.adapters.empty()) json["adapters"] = m.adapters;
  if (m.shuffle) json["shuffle"] = *m.shuffle;
  // JSON cannot represent inf and nan, so only a finite loss is written.
  if (m.loss && std::isfinite(*m.loss)) json["loss"] = *m.loss;
  // FirstLine writes the first line, so the rest begins after the first line.
  const std::string rest = json.dump(1).substr(2) + "\n";
  return FirstLine(rest) + rest;
}

Manifest ParseManifest(const std::string& text, const std::string& source) {
  const size_t rest = std::min(text.find('\n'), text.size() - 1) + 1;
  if (text.empty() || text.substr(0, rest) != FirstLine(text.substr(rest))) {
    throw TrainError(ExitCode::kBadInput,
                     source + ": its checksum is wrong; it is damaged or was edited");
  }
  const nlohmann::json json = ParseJson(text, source);
  JsonObject object(json, source, "");
  const std::string format = object.String("format").value_or("");
  const bool with_cuts = format == kFormatWithCuts;
  if (!with_cuts && format != kFormat) {
    object.Fail("format", "is \"" + Truncate(format, kMaxWordBytes) + "\"; this program reads \"" +
                              kFormat + "\" and \"" + kFormatWithCuts + "\"");
  }
  Manifest m;
  m.serial = Count(object, "serial");
  m.run_id = Id(object, "run_id");
  m.job_id = Id(object, "job_id");
  m.started_by = object.String("started_by").value_or("");
  m.position.step = Count(object, "step");
  m.position.epoch = Count(object, "epoch");
  m.position.samples_in_epoch = Count(object, "samples_in_epoch");
  m.optimizer_updates = Count(object, "optimizer_updates");
  m.optimizer = Word(object, "optimizer");
  if (auto scaler = object.Object("loss_scaler")) m.loss_scaler = ParseLossScaler(*scaler);
  m.seed = static_cast<uint64_t>(Required(object.Int("seed", 0), object, "seed"));
  m.train_samples = Count(object, "train_samples");
  m.samples_seen = Count(object, "samples_seen");
  m.world_size = Required(object.Int("world_size", 1, kMaxWorldSize), object, "world_size");
  m.train_batch_size = Count(object, "train_batch_size");
  m.saved_ms = CountOr(object, "saved_ms", 0);
  m.shuffle = object.Bool("shuffle");
  m.micro_steps = CountOr(object, "micro_steps", 0);
  m.skipped_steps = CountOr(object, "skipped_steps", m.position.step - m.optimizer_updates);
  m.scheduled_updates = CountOr(object, "scheduled_updates", m.optimizer_updates);
  for (const auto& [key, rates] :
       {std::pair("learning_rates", &m.learning_rates), {"next_rates", &m.next_rates}}) {
    if (!json.contains(key)) continue;
    *rates = object.Numbers(key, json[key].size(), 0, std::numeric_limits<double>::max())
                 .value_or(*rates);
  }
  m.zero_stage = CountOr(object, "zero_stage", 0);
  m.pipeline_stages = CountOr(object, "pipeline_stages", 0);
  m.loss = object.Number("loss", std::numeric_limits<double>::lowest());
  m.dtype = Word(object, "dtype");
  m.model = object.String("model").value_or("");
  m.adapters = object.String("adapters").value_or("");
  m.client_state = ParseClientState(json, source);
  const std::map<std::string, uint64_t> files = ParseFiles(json, source, m.files);
  std::set<std::string> names;
  ForEach(json, source, "", "tensors", [&](const nlohmann::json& tensor, JsonObject item) {
    m.tensors.push_back(ParseTensor(tensor, item, source, files, with_cuts));
    if (!names.insert(m.tensors.back().name).second) item.Fail("name", "is given twice");
  });
  return m;
}

}  // namespace dslaunch
