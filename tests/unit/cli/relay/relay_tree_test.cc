#include "cli/relay/relay_tree.h"

#include <gtest/gtest.h>

namespace dslaunch::relay_tree_test {
namespace {

size_t RelaysOf(size_t nodes) {
  const size_t fanout = RelayFanout(nodes, std::nullopt, false);
  return RelayOf(nodes - 1, fanout) + 1;
}

TEST(RelayTreeTest, UsesNoRelaysUpTo512Nodes) {
  EXPECT_EQ(RelayFanout(1, std::nullopt, false), 0u);
  EXPECT_EQ(RelayFanout(512, std::nullopt, false), 0u);
  EXPECT_EQ(RelayFanout(513, std::nullopt, false), 23u);
}

TEST(RelayTreeTest, DefaultFanoutIsSquareRootOfNodes) {
  for (size_t nodes = 513; nodes <= 20'000; ++nodes) {
    const size_t fanout = RelayFanout(nodes, std::nullopt, false);
    EXPECT_LT((fanout - 1) * (fanout - 1), nodes);
    EXPECT_LE(RelaysOf(nodes), fanout) << nodes;
  }
  EXPECT_EQ(RelaysOf(10'000), 100u);
}

TEST(RelayTreeTest, UsesRequestedFanout) {
  EXPECT_EQ(RelayFanout(10'000, 0, false), 0u);
  EXPECT_EQ(RelayFanout(9, 3, false), 3u);
  EXPECT_EQ(RelayOf(2, 3), 0u);
  EXPECT_EQ(RelayOf(3, 3), 1u);
}

TEST(RelayTreeTest, MakesTwoGroupsIfRequired) {
  EXPECT_EQ(RelayFanout(9, 9, false), 9u);
  EXPECT_EQ(RelayFanout(9, 9, true), 5u);
  EXPECT_EQ(RelayFanout(9, 100, true), 5u);
  EXPECT_EQ(RelayFanout(9, 3, true), 3u);
  EXPECT_EQ(RelayFanout(9, 0, true), 0u);
  EXPECT_EQ(RelayFanout(2, 2, true), 1u) << "no relays";
  EXPECT_EQ(RelayFanout(600, std::nullopt, true), RelayFanout(600, std::nullopt, false));
}

}  // namespace
}  // namespace dslaunch::relay_tree_test
