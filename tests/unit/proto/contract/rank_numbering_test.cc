#include "proto/contract/rank_numbering.h"

#include <gmock/gmock.h>

namespace dslaunch::rank_numbering_test {
namespace {

TEST(RankNumberingTest, NumbersBlocksInHostfileOrderWithoutGaps) {
  const RankNumbering ranks = NumberRanks({{5, 2}, {1, 3}, {4, 1}});
  ASSERT_EQ(ranks.blocks.size(), 3u);
  EXPECT_EQ(ranks.world_size, 6u);
  const RankBlock expected[] = {{1, 0, 0, 3}, {4, 1, 3, 1}, {5, 2, 4, 2}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ranks.blocks[i].node_index, expected[i].node_index);
    EXPECT_EQ(ranks.blocks[i].node_rank, expected[i].node_rank);
    EXPECT_EQ(ranks.blocks[i].first_rank, expected[i].first_rank);
    EXPECT_EQ(ranks.blocks[i].slots, expected[i].slots);
  }
}

TEST(RankNumberingTest, NodeWithoutRanksHasNoBlock) {
  const RankNumbering ranks = NumberRanks({{5, 2}, {1, 3}});
  ASSERT_NE(ranks.BlockOf(5), nullptr);
  EXPECT_EQ(ranks.BlockOf(5)->first_rank, 3u);
  EXPECT_EQ(ranks.BlockOf(0), nullptr);
  EXPECT_EQ(ranks.BlockOf(2), nullptr);
  EXPECT_EQ(ranks.BlockOf(6), nullptr);
}

TEST(RankNumberingTest, FindsBlockOfRank) {
  const RankNumbering ranks = NumberRanks({{5, 2}, {1, 3}, {4, 1}});
  std::vector<uint32_t> nodes;
  for (uint32_t rank = 0; rank < ranks.world_size; ++rank)
    nodes.push_back(ranks.BlockOfRank(rank)->node_index);
  EXPECT_EQ(nodes, (std::vector<uint32_t>{1, 1, 1, 4, 5, 5}));
  EXPECT_EQ(ranks.BlockOfRank(6), nullptr);
  EXPECT_EQ(ranks.BlockOfRank(0xffffffff), nullptr);
  EXPECT_EQ(NumberRanks({}).BlockOfRank(0), nullptr);
}

TEST(RankNumberingTest, EmptyJobHasNoRanks) {
  EXPECT_EQ(NumberRanks({}).world_size, 0u);
  EXPECT_EQ(NumberRanks({}).BlockOf(0), nullptr);
}

}  // namespace
}  // namespace dslaunch::rank_numbering_test
