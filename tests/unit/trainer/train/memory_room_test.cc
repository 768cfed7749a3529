#include "trainer/train/memory_room.h"

#include <gtest/gtest.h>

namespace dslaunch {
namespace {

TEST(MemoryRoomTest, AddsUpRanksOfEachNode) {
  const std::vector<RankRoom> ranks = {{0, 40, 100}, {0, 40, 100}, {1, 60, 100}, {1, 60, 100}};
  const std::optional<NodeRoom> node = NodeWithoutRoom(ranks);
  ASSERT_TRUE(node);
  EXPECT_EQ(node->node, 1);
  EXPECT_EQ(node->ranks, 2);
  EXPECT_EQ(node->needed, 120);
  EXPECT_EQ(node->available, 100);
}

TEST(MemoryRoomTest, AcceptsNodesWithRoomOrUnknownMemory) {
  EXPECT_FALSE(NodeWithoutRoom({{0, 50, 100}, {0, 50, 100}}));
  EXPECT_FALSE(NodeWithoutRoom({{0, 50, 0}}));
  EXPECT_FALSE(NodeWithoutRoom({}));
}

}  // namespace
}  // namespace dslaunch
