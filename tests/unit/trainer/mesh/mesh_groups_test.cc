#include "trainer/mesh/mesh_groups.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tests/unit/trainer/ranks.h"

namespace dslaunch::mesh_groups_test {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

std::vector<int> RanksOf(const ProcessGroup& group) {
  return {group.job_ranks().begin(), group.job_ranks().end()};
}

// Returns the sum of the ranks, within `world`, of the members of `group`.
int64_t SumOfRanks(const ProcessGroup& group, const ProcessGroup& world) {
  at::Tensor sum = at::full({1}, world.rank(), at::kLong);
  group.AllReduce(sum);
  return sum.item<int64_t>();
}

TEST(MeshGroupsTest, NeedsNoSubgroupForWholeModels) {
  for (const auto& error : RunRanks(2, [](const ProcessGroup& world) {
         const MeshGroups ranks(world);
         EXPECT_EQ(&ranks.data(), &world);
         EXPECT_EQ(ranks.tensor(), nullptr);
         EXPECT_EQ(ranks.place(), (MeshPlace{.replica = world.rank()}));
         EXPECT_TRUE(ranks.Counts("weight"));
         EXPECT_THAT(ranks.tied(), IsEmpty());
       })) {
    EXPECT_EQ(TextOf(error), "");
  }
}

TEST(MeshGroupsTest, MakesGroupsOfEveryAxis) {
  for (const auto& error : RunRanks(8, [](const ProcessGroup& world) {
         const Mesh mesh{.pipeline = 2, .data = 2, .tensor = 2};
         const ModelCut cut{.tied = {{"head", {0, 1}}, {"bias", {0, 1}}}, .tied_buffers = {}};
         const MeshGroups ranks(world, mesh, cut);
         RecordSubgroup(*ranks.tensor());
         RecordSubgroup(ranks.data());
         RecordSubgroup(*ranks.tied()[0].group);
         const auto along = [&](MeshAxis axis) { return mesh.RanksAlong(axis, ranks.place()); };
         EXPECT_THAT(RanksOf(*ranks.tensor()), ElementsAreArray(along(MeshAxis::kTensor)));
         EXPECT_THAT(RanksOf(ranks.data()), ElementsAreArray(along(MeshAxis::kData)));
         EXPECT_THAT(RanksOf(*ranks.tied()[0].group), ElementsAreArray(along(MeshAxis::kPipeline)));
         EXPECT_EQ(ranks.tied()[1].group, ranks.tied()[0].group) << "one for both tensors";
         EXPECT_EQ(ranks.tensor()->rank(), ranks.place().part);
         EXPECT_EQ(ranks.data().rank(), ranks.place().replica);
         const int own = world.rank();
         EXPECT_EQ(SumOfRanks(*ranks.tensor(), world), own + (own ^ 1));
         EXPECT_EQ(SumOfRanks(ranks.data(), world), own + (own ^ 2));
         EXPECT_EQ(SumOfRanks(*ranks.tied()[0].group, world), own + (own ^ 4));
         EXPECT_EQ(ranks.RankOfStage(0), own & 3);
         world.Barrier();
       })) {
    EXPECT_EQ(TextOf(error), "");
  }
}

}  // namespace
}  // namespace dslaunch::mesh_groups_test
