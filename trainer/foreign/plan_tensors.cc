#include "trainer/foreign/plan_tensors.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {

std::string AddPlace(BytesInFile place, ForeignCheckpoint* plan) {
  std::string key =
      std::filesystem::path(place.path).lexically_relative(plan->checkpoint.folder).string() + "@" +
      std::to_string(place.begin);
  for (const int64_t step : place.stride) key += "/" + std::to_string(step);
  plan->places.emplace(key, std::move(place));
  return key;
}

void AddPieces(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
               const std::vector<Piece>& pieces, ForeignCheckpoint* plan) {
  TensorRecord record{name, dtype, shape, {}};
  Shard shard = Shard::Whole(NumElements(shape).value());
  int64_t done = 0;
  for (const Piece& piece : pieces) {
    if (piece.elements == 0) continue;
    shard.start = done;
    shard.stop = done += piece.elements;
    record.slices.push_back({shard, AddPlace({piece.path, piece.begin, {}}, plan)});
  }
  plan->checkpoint.manifest.tensors.push_back(std::move(record));
}

void AddWhole(const std::string& name, const std::string& path, const ArchivedTensor& tensor,
              ForeignCheckpoint* plan) {
  const int64_t elements = NumElements(tensor.shape).value();
  if (tensor.stride.empty() || elements == 0) {
    AddPieces(name, tensor.dtype, tensor.shape, {{path, tensor.begin, elements}}, plan);
    return;
  }
  TensorRecord record{name, tensor.dtype, tensor.shape, {}};
  record.slices.push_back(
      {Shard::Whole(elements), AddPlace({path, tensor.begin, tensor.stride}, plan)});
  plan->checkpoint.manifest.tensors.push_back(std::move(record));
}

void AddFile(const std::string& name, ForeignCheckpoint* plan) {
  const std::string path = plan->checkpoint.folder + "/" + name;
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) throw TrainError(ExitCode::kIo, path + ": " + error.message());
  plan->checkpoint.manifest.files.push_back({name, {bytes, 0}});
}

}  // namespace dslaunch
