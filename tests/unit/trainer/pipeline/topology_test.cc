#include "trainer/pipeline/topology.h"

#include <gmock/gmock.h>

namespace dslaunch::topology_test {
namespace {

using ::testing::ElementsAre;

// The facts of DeepSpeed's tests of its pipe x data grid.
TEST(TopologyTest, RanksOfAStageAreNeighboursAsInDeepSpeed) {
  const Topology grid(4, 2, RankOrder::kPipeData);
  EXPECT_EQ(grid.replicas(), 2);
  EXPECT_EQ(grid.RankOf(0, 0), 0);
  EXPECT_EQ(grid.RankOf(0, 1), 1);
  EXPECT_EQ(grid.RankOf(1, 0), 2);
  EXPECT_EQ(grid.RankOf(1, 1), 3);
  EXPECT_THAT(grid.RanksOfStage(0), ElementsAre(0, 1));
  EXPECT_THAT(grid.RanksOfStage(1), ElementsAre(2, 3));
  EXPECT_THAT(grid.RanksOfReplica(0), ElementsAre(0, 2));
  EXPECT_THAT(grid.RanksOfReplica(1), ElementsAre(1, 3));
}

TEST(TopologyTest, RanksOfAReplicaAreNeighboursOnRequest) {
  const Topology grid(6, 3, RankOrder::kDataPipe);
  EXPECT_THAT(grid.RanksOfStage(1), ElementsAre(1, 4));
  EXPECT_THAT(grid.RanksOfReplica(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(grid.RanksOfReplica(1), ElementsAre(3, 4, 5));
}

TEST(TopologyTest, EveryRankHasItsOwnPlace) {
  for (RankOrder order : {RankOrder::kPipeData, RankOrder::kDataPipe}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int replicas = 1; replicas <= 5; ++replicas) {
        const Topology grid(stages * replicas, stages, order);
        ASSERT_EQ(grid.stages(), stages);
        ASSERT_EQ(grid.replicas(), replicas);
        for (int rank = 0; rank < stages * replicas; ++rank) {
          const int stage = grid.StageOf(rank);
          const int replica = grid.ReplicaOf(rank);
          ASSERT_TRUE(stage >= 0 && stage < stages && replica >= 0 && replica < replicas);
          EXPECT_EQ(grid.RankOf(stage, replica), rank);
          EXPECT_EQ(grid.RanksOfStage(stage)[static_cast<size_t>(replica)], rank);
          EXPECT_EQ(grid.RanksOfReplica(replica)[static_cast<size_t>(stage)], rank);
        }
      }
    }
  }
}

}  // namespace
}  // namespace dslaunch::topology_test
