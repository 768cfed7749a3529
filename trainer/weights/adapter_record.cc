#include "trainer/weights/adapter_record.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text/sanitize.h"
#include "trainer/base/crc32.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/json/json_object.h"
#include "trainer/weights/weight_files.h"

namespace dslaunch {
namespace {

uint32_t SumTensor(const SafetensorsFile& file, const SafetensorsFile::Tensor& tensor) {
  constexpr uint64_t kChunkBytes = 4 << 20;
  std::vector<char> chunk(std::min(kChunkBytes, tensor.end - tensor.begin));
  uint32_t crc32 = 0;
  for (uint64_t at = tensor.begin; at < tensor.end; at += chunk.size()) {
    const uint64_t bytes = std::min<uint64_t>(chunk.size(), tensor.end - at);
    file.Read(tensor, at - tensor.begin, bytes, chunk.data());
    crc32 = Crc32(chunk.data(), bytes, crc32);
  }
  return crc32;
}

// Returns the first name whose value differs, or that only one of the maps has. Precondition: the
// maps differ.
std::string FirstDifference(const std::map<std::string, uint32_t>& a,
                            const std::map<std::string, uint32_t>& b) {
  const auto [in_a, in_b] = std::ranges::mismatch(a, b);
  if (in_a == a.end()) return in_b->first;
  return in_b == b.end() ? in_a->first : std::min(in_a->first, in_b->first);
}

}  // namespace

std::string FormatAdapterRecord(const AdapterRecord& record) {
  return nlohmann::ordered_json{
      {"lora", LoraSection(record.lora)},
      {"base", {{"path", record.base}, {"tensors", nlohmann::ordered_json(record.base_sums)}}}}
      .dump();
}

AdapterRecord ParseAdapterRecord(const std::string& text, const std::string& source) {
  const nlohmann::json json = ParseJson(text, source, JsonComments::kRefuse);
  JsonObject object(json, source, "adapters");
  AdapterRecord record;
  const std::optional<JsonObject> lora = object.Object("lora");
  std::optional<JsonObject> base = object.Object("base");
  if (!lora || !base) object.FailWhole("has no lora or no base");
  record.lora = ReadLora(*lora);
  record.base = base->String("path").value_or("");
  std::optional<JsonObject> sums = base->Object("tensors");
  if (!sums) base->Fail("tensors", "is missing");
  for (const auto& [name, value] : sums->value().items()) {
    const auto sum = sums->Int(name.c_str(), 0, std::numeric_limits<uint32_t>::max());
    if (sum) record.base_sums[name] = static_cast<uint32_t>(*sum);
  }
  return record;
}

std::map<std::string, uint32_t> SumWeights(const std::string& path, int part, int parts) {
  std::map<std::string, uint32_t> sums;
  int number = 0;
  for (const std::string& name : WeightFiles(path)) {
    const SafetensorsFile file(name);
    for (const auto& [tensor_name, tensor] : file.tensors()) {
      if (number++ % parts == part) sums[tensor_name] = SumTensor(file, tensor);
    }
  }
  return sums;
}

std::string AdapterDifference(const AdapterRecord& saved, const AdapterRecord& own) {
  const nlohmann::ordered_json theirs = LoraSection(saved.lora), ours = LoraSection(own.lora);
  for (const char* key : {"rank", "alpha", "use_rslora", "targets"}) {
    if (theirs[key] == ours[key]) continue;
    return std::string("its adapters have lora.") + key + " " + theirs[key].dump() +
           ", this run has " + ours[key].dump() + "; give the same";
  }
  if (saved.base_sums == own.base_sums) return "";
  const auto describe = [](const std::string& base) {
    return base.empty() ? std::string("drawn weights") : base;
  };
  std::string difference = "its adapters were trained on " + describe(saved.base);
  if (saved.base.empty() || own.base.empty()) {
    return difference + ", this run has " + describe(own.base) + "; give the same weights";
  }
  const std::string tensor = FirstDifference(saved.base_sums, own.base_sums);
  difference += own.base == saved.base ? ", which has changed since" : ", not on " + own.base;
  return difference + " (tensor " + SanitizeForTerminal(tensor) +
         " differs); give the weights that they were trained on";
}

}  // namespace dslaunch
