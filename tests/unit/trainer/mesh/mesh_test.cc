#include "trainer/mesh/mesh.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace dslaunch::mesh_test {
namespace {

using ::testing::ElementsAre;

// Checks the same values as DeepSpeed's tests of its grid of pipeline and data ranks.
TEST(MeshTest, NumbersRanksOfStageInRowAsDeepSpeed) {
  const Mesh mesh = MakeMesh(4, 2).value();
  EXPECT_EQ(mesh.data, 2);
  EXPECT_EQ(mesh.RankOf({.stage = 0, .replica = 1}), 1);
  EXPECT_EQ(mesh.RankOf({.stage = 1, .replica = 0}), 2);
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kData, {.stage = 0}), ElementsAre(0, 1));
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kData, {.stage = 1}), ElementsAre(2, 3));
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kPipeline, {.replica = 0}), ElementsAre(0, 2));
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kPipeline, {.replica = 1}), ElementsAre(1, 3));
}

TEST(MeshTest, NumbersRanksOfReplicaInRowInDataPipeOrder) {
  const Mesh mesh = MakeMesh(6, 3, 1, RankOrder::kDataPipe).value();
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kData, {.stage = 1}), ElementsAre(1, 4));
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kPipeline, {.replica = 0}), ElementsAre(0, 1, 2));
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kPipeline, {.replica = 1}), ElementsAre(3, 4, 5));
}

TEST(MeshTest, TensorRanksHaveConsecutiveNumbers) {
  const Mesh mesh = MakeMesh(12, 2, 3).value();
  EXPECT_EQ(mesh.data, 2);
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kTensor, {.stage = 1, .replica = 0}), ElementsAre(6, 7, 8));
  EXPECT_THAT(mesh.RanksAlong(MeshAxis::kData, {.stage = 0, .part = 2}), ElementsAre(2, 5));
}

TEST(MeshTest, RejectsSizesThatDoNotDivideRanks) {
  EXPECT_FALSE(MakeMesh(4, 3));
  EXPECT_FALSE(MakeMesh(4, 2, 4));
  EXPECT_TRUE(MakeMesh(8, 2, 4));
}

// Returns every mesh of up to 4 x 4 x 4 ranks, in every order of ranks that it can have.
std::vector<Mesh> AllMeshes() {
  std::vector<Mesh> meshes;
  for (int pipeline = 1; pipeline <= 4; ++pipeline) {
    for (int data = 1; data <= 4; ++data) {
      for (int tensor = 1; tensor <= 4; ++tensor) {
        meshes.push_back({pipeline, data, tensor});
        if (tensor == 1) meshes.push_back({pipeline, data, tensor, RankOrder::kDataPipe});
      }
    }
  }
  return meshes;
}

// Returns the places of all ranks, counted up like the digits of a number.
std::vector<MeshPlace> PlacesByCounting(const Mesh& mesh) {
  std::vector<MeshPlace> places;
  if (mesh.order == RankOrder::kDataPipe) {
    for (int replica = 0; replica < mesh.data; ++replica) {
      for (int stage = 0; stage < mesh.pipeline; ++stage) places.push_back({stage, replica, 0});
    }
    return places;
  }
  for (int stage = 0; stage < mesh.pipeline; ++stage) {
    for (int replica = 0; replica < mesh.data; ++replica) {
      for (int part = 0; part < mesh.tensor; ++part) places.push_back({stage, replica, part});
    }
  }
  return places;
}

// Returns the ranks that agree with `place` in all coordinates except `axis`, found by search.
std::vector<int> AlongBySearch(const std::vector<MeshPlace>& places, MeshAxis axis,
                               const MeshPlace& place) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    MeshPlace moved = places[rank];
    if (axis == MeshAxis::kPipeline) moved.stage = place.stage;
    if (axis == MeshAxis::kData) moved.replica = place.replica;
    if (axis == MeshAxis::kTensor) moved.part = place.part;
    if (moved == place) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

TEST(MeshTest, AgreesWithBruteForce) {
  for (const Mesh& mesh : AllMeshes()) {
    const std::vector<MeshPlace> places = PlacesByCounting(mesh);
    ASSERT_EQ(mesh.size(), static_cast<int>(places.size()));
    EXPECT_EQ(mesh.cuts_model(), mesh.size() != mesh.data);
    EXPECT_EQ(MakeMesh(mesh.size(), mesh.pipeline, mesh.tensor, mesh.order)->data, mesh.data);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const MeshPlace& place = places[static_cast<size_t>(rank)];
      ASSERT_EQ(mesh.PlaceOf(rank), place) << rank;
      ASSERT_EQ(mesh.RankOf(place), rank);
      for (const MeshAxis axis : {MeshAxis::kPipeline, MeshAxis::kData, MeshAxis::kTensor}) {
        ASSERT_EQ(mesh.RanksAlong(axis, place), AlongBySearch(places, axis, place)) << rank;
      }
    }
  }
}

}  // namespace
}  // namespace dslaunch::mesh_test
