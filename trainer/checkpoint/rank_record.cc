#include "trainer/checkpoint/rank_record.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

using nlohmann::json;

[[noreturn]] void Fail(const TensorRecord& tensor, const std::string& problem) {
  throw TrainError(ExitCode::kInternal, "internal error: the ranks' parts of tensor " +
                                            Truncate(tensor.name) + " " + problem);
}

// Returns an unsigned integer. Throws for any other value, whose conversion could be undefined
// behavior.
uint64_t WholeOf(const json& value) { return value.get_ref<const json::number_unsigned_t&>(); }

int64_t SignedWholeOf(const json& value) { return static_cast<int64_t>(WholeOf(value)); }

RankRecord ParseGoodRecord(const std::string& text, int rank) {
  ThrowIfFailure(text, rank);
  const json parsed = json::parse(text);
  RankRecord record;
  for (const json& file : parsed.at("files")) {
    record.files.push_back({file.at(0).get<std::string>(),
                            {WholeOf(file.at(1)), static_cast<uint32_t>(WholeOf(file.at(2)))}});
  }
  for (const json& item : parsed.at("tensors")) {
    TensorRecord tensor{item.at(0).get<std::string>(), item.at(1).get<std::string>(), {}, {}};
    for (const json& dim : item.at(2)) tensor.shape.push_back(SignedWholeOf(dim));
    for (const json& slice : item.at(3)) {
      const Shard shard = {SignedWholeOf(slice.at(0)), SignedWholeOf(slice.at(1)),
                           SignedWholeOf(slice.at(2)), SignedWholeOf(slice.at(3)),
                           SignedWholeOf(slice.at(4))};
      tensor.slices.push_back({shard, slice.at(5).get<std::string>()});
    }
    record.tensors.push_back(std::move(tensor));
  }
  return record;
}

}  // namespace

std::string FormatRecord(const RankRecord& record) {
  json files = json::array(), tensors = json::array();
  for (const FileRecord& file : record.files) {
    files.push_back({file.name, file.sum.bytes, file.sum.crc32});
  }
  for (const TensorRecord& tensor : record.tensors) {
    json slices = json::array();
    for (const auto& [shard, file] : tensor.slices) {
      slices.push_back({shard.offset, shard.row, shard.pitch, shard.start, shard.stop, file});
    }
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, std::move(slices)});
  }
  return json{{"files", std::move(files)}, {"tensors", std::move(tensors)}}.dump();
}

RankRecord ParseRecord(const std::string& text, int rank) {
  try {
    return ParseGoodRecord(text, rank);
  } catch (const json::exception& error) {
    throw TrainError(ExitCode::kInternal, "rank " + std::to_string(rank) +
                                              ": its record of what it has written cannot be "
                                              "read: " +
                                              Truncate(error.what()));
  }
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
    std::ranges::sort(tensor.slices, {}, [](const TensorSlice& slice) {
      return std::pair(slice.shard.offset, slice.shard.start);
    });
    ShardCoverage coverage(NumElements(tensor.shape).value_or(-1));
    for (const TensorSlice& slice : tensor.slices) {
      if (!coverage.Add(slice.shard)) Fail(tensor, "leave a hole or overlap");
    }
    if (!coverage.complete()) Fail(tensor, "are not the whole");
  }
}

}  // namespace dslaunch
