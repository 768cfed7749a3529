#include "trainer/checkpoint/rank_record.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {
namespace {

using nlohmann::json;

[[noreturn]] void Fail(const TensorRecord& tensor, const std::string& problem) {
  throw TrainError(ExitCode::kInternal,
                   "internal error: the ranks' parts of tensor " + tensor.name + " " + problem);
}

}  // namespace

std::string FormatRecord(const RankRecord& record) {
  json files = json::array(), tensors = json::array();
  for (const FileRecord& file : record.files) {
    files.push_back({file.name, file.sum.bytes, file.sum.crc32});
  }
  for (const TensorRecord& tensor : record.tensors) {
    json slices = json::array();
    for (const TensorSlice& slice : tensor.slices) {
      slices.push_back({slice.start, slice.end, slice.file});
    }
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, std::move(slices)});
  }
  return json{{"files", std::move(files)}, {"tensors", std::move(tensors)}}.dump();
}

RankRecord ParseRecord(const std::string& text, int rank) {
  ThrowIfFailure(text, rank);
  const json parsed = json::parse(text);
  RankRecord record;
  for (const json& file : parsed.at("files")) {
    record.files.push_back(
        {file[0].get<std::string>(), {file[1].get<uint64_t>(), file[2].get<uint32_t>()}});
  }
  for (const json& item : parsed.at("tensors")) {
    TensorRecord tensor{item[0].get<std::string>(),
                        item[1].get<std::string>(),
                        item[2].get<std::vector<int64_t>>(),
                        {}};
    for (const json& slice : item[3]) {
      tensor.slices.push_back(
          {slice[0].get<int64_t>(), slice[1].get<int64_t>(), slice[2].get<std::string>()});
    }
    record.tensors.push_back(std::move(tensor));
  }
  return record;
}

void EnterRecords(const std::vector<RankRecord>& ranks, Manifest& manifest) {
  std::map<std::string, size_t> places;
  for (const RankRecord& rank : ranks) {
    manifest.files.insert(manifest.files.end(), rank.files.begin(), rank.files.end());
    for (const TensorRecord& tensor : rank.tensors) {
      const auto [place, is_new] = places.emplace(tensor.name, manifest.tensors.size());
      if (is_new) {
        manifest.tensors.push_back(tensor);
        continue;
      }
      TensorRecord& whole = manifest.tensors[place->second];
      if (whole.dtype != tensor.dtype || whole.shape != tensor.shape) Fail(tensor, "differ");
      whole.slices.insert(whole.slices.end(), tensor.slices.begin(), tensor.slices.end());
    }
  }
  for (TensorRecord& tensor : manifest.tensors) {
    std::sort(tensor.slices.begin(), tensor.slices.end(),
              [](const TensorSlice& a, const TensorSlice& b) { return a.start < b.start; });
    int64_t at = 0;
    for (const TensorSlice& slice : tensor.slices) {
      if (slice.start != at) Fail(tensor, "leave a hole or overlap");
      at = slice.end;
    }
    if (at != NumElements(tensor.shape)) Fail(tensor, "are not the whole");
  }
}

}  // namespace dslaunch
