#include "trainer/mesh/mesh.h"

#include <utility>

namespace dslaunch {

const char* RankOrderName(RankOrder order) {
  return order == RankOrder::kPipeData ? "pipe_data" : "data_pipe";
}

MeshPlace Mesh::PlaceOf(int rank) const {
  if (order == RankOrder::kDataPipe) return {.stage = rank % pipeline, .replica = rank / pipeline};
  return {.stage = rank / (data * tensor), .replica = rank / tensor % data, .part = rank % tensor};
}

int Mesh::RankOf(const MeshPlace& place) const {
  if (order == RankOrder::kDataPipe) return place.replica * pipeline + place.stage;
  return (place.stage * data + place.replica) * tensor + place.part;
}

std::vector<int> Mesh::RanksAlong(MeshAxis axis, MeshPlace place) const {
  const auto [coordinate, size] = axis == MeshAxis::kPipeline
                                      ? std::pair(&MeshPlace::stage, pipeline)
                                  : axis == MeshAxis::kData ? std::pair(&MeshPlace::replica, data)
                                                            : std::pair(&MeshPlace::part, tensor);
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) {
    place.*coordinate = i;
    ranks.push_back(RankOf(place));
  }
  return ranks;
}

std::optional<Mesh> MakeMesh(int ranks, int pipeline, int tensor, RankOrder order) {
  if (ranks % (pipeline * tensor) != 0) return std::nullopt;
  return Mesh{
      .pipeline = pipeline, .data = ranks / (pipeline * tensor), .tensor = tensor, .order = order};
}

}  // namespace dslaunch
