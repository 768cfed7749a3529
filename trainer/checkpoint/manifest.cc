#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "dslaunch checkpoint 1";
constexpr int64_t kMaxWorldSize = 1 << 24;

std::string Hex(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

std::string FirstLine(const std::string& rest) {
  return "{\"crc32\":\"" + Hex(Crc32(rest.data(), rest.size())) + "\",\n";
}

// Files are made by us, so their names are plain; anything else may point out of the folder.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.front() != '.' && name != kManifestFile &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

template <class T>
T Required(std::optional<T> value, const JsonObject& object, const char* key) {
  if (!value) object.Fail(key, "is missing");
  return *std::move(value);
}

int64_t Count(JsonObject& object, const char* key) {
  return Required(object.Int(key, 0), object, key);
}

// Calls read(object) for each item of the list at `key`.
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
  if (!IsPlainFileName(file.name)) object.Fail("name", "is not a plain file name");
  file.sum.bytes = static_cast<uint64_t>(Count(object, "bytes"));
  file.sum.crc32 =
      static_cast<uint32_t>(Required(object.Int("crc32", 0, UINT32_MAX), object, "crc32"));
  return file;
}

TensorRecord ParseTensor(const nlohmann::json& json, JsonObject object, const std::string& source,
                         const std::set<std::string>& files) {
  TensorRecord tensor;
  tensor.name = Required(object.String("name"), object, "name");
  tensor.dtype = Required(object.String("dtype"), object, "dtype");
  if (!DtypeBytes(tensor.dtype)) object.Fail("dtype", "is unknown: " + tensor.dtype);
  const auto shape = json.find("shape");
  const auto is_dim = [](const nlohmann::json& dim) {
    return dim.is_number_unsigned() && dim.get<uint64_t>() <= INT64_MAX;
  };
  if (shape == json.end() || !shape->is_array() ||
      !std::all_of(shape->begin(), shape->end(), is_dim)) {
    object.Fail("shape", "is not a list of sizes");
  }
  tensor.shape = shape->get<std::vector<int64_t>>();
  const std::optional<int64_t> count = NumElements(tensor.shape);
  if (!count) object.Fail("shape", "is too large");
  int64_t at = 0;
  ForEach(json, source, "tensor " + tensor.name + ": ", "slices",
          [&](const nlohmann::json&, JsonObject item) {
            TensorSlice slice;
            slice.start = Count(item, "start");
            slice.end = Count(item, "end");
            slice.file = Required(item.String("file"), item, "file");
            if (!files.contains(slice.file)) item.Fail("file", "is not among the files");
            if (slice.start != at || slice.end < slice.start) {
              item.Fail("start", "leaves a hole or an overlap");
            }
            at = slice.end;
            tensor.slices.push_back(std::move(slice));
          });
  if (at != *count) object.Fail("slices", "do not cover the tensor");
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

}  // namespace

std::string FormatManifest(const Manifest& m) {
  Json files = Json::array();
  for (const FileRecord& file : m.files) {
    files.push_back({{"name", file.name}, {"bytes", file.sum.bytes}, {"crc32", file.sum.crc32}});
  }
  Json tensors = Json::array();
  for (const TensorRecord& tensor : m.tensors) {
    Json slices = Json::array();
    for (const TensorSlice& slice : tensor.slices) {
      slices.push_back({{"start", slice.start}, {"end", slice.end}, {"file", slice.file}});
    }
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"slices", std::move(slices)}});
  }
  const Json json = {{"format", kFormat},
                     {"serial", m.serial},
                     {"run_id", m.run_id},
                     {"job_id", m.job_id},
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
                     {"zero_stage", m.zero_stage},
                     {"dtype", m.dtype},
                     {"model", m.model},
                     {"client_state", m.client_state},
                     {"files", std::move(files)},
                     {"tensors", std::move(tensors)}};
  const std::string rest = json.dump(1).substr(2) + "\n";  // without its first line
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
  if (object.String("format") != kFormat) {
    object.Fail("format", std::string("is not \"") + kFormat + "\"");
  }
  Manifest m;
  m.serial = Count(object, "serial");
  m.run_id = Required(object.String("run_id"), object, "run_id");
  m.job_id = Required(object.String("job_id"), object, "job_id");
  m.position.step = Count(object, "step");
  m.position.epoch = Count(object, "epoch");
  m.position.samples_in_epoch = Count(object, "samples_in_epoch");
  m.optimizer_updates = Count(object, "optimizer_updates");
  m.optimizer = object.String("optimizer").value_or("");
  if (auto scaler = object.Object("loss_scaler")) m.loss_scaler = ParseLossScaler(*scaler);
  m.seed = static_cast<uint64_t>(Count(object, "seed"));
  m.train_samples = Count(object, "train_samples");
  m.samples_seen = Count(object, "samples_seen");
  m.world_size = Required(object.Int("world_size", 1, kMaxWorldSize), object, "world_size");
  m.train_batch_size = Count(object, "train_batch_size");
  m.saved_ms = object.Int("saved_ms", 0).value_or(0);
  m.micro_steps = object.Int("micro_steps", 0).value_or(0);
  m.skipped_steps = object.Int("skipped_steps", 0).value_or(m.position.step - m.optimizer_updates);
  m.scheduled_updates = object.Int("scheduled_updates", 0).value_or(m.optimizer_updates);
  m.zero_stage = object.Int("zero_stage", 0).value_or(0);
  m.dtype = object.String("dtype").value_or("");
  m.model = object.String("model").value_or("");
  if (const auto state = json.find("client_state"); state != json.end()) {
    JsonObject texts(*state, source, "client_state");
    for (const auto& [key, value] : state->items()) {
      m.client_state[key] = Required(texts.String(key.c_str()), texts, key.c_str());
    }
  }
  std::set<std::string> files;
  ForEach(json, source, "", "files", [&](const nlohmann::json&, JsonObject item) {
    m.files.push_back(ParseFile(item));
    if (!files.insert(m.files.back().name).second) item.Fail("name", "is given twice");
  });
  std::set<std::string> names;
  ForEach(json, source, "", "tensors", [&](const nlohmann::json& tensor, JsonObject item) {
    m.tensors.push_back(ParseTensor(tensor, item, source, files));
    if (!names.insert(m.tensors.back().name).second) item.Fail("name", "is given twice");
  });
  return m;
}

}  // namespace dslaunch
