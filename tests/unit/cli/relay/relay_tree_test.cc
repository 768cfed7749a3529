#include "cli/relay/relay_tree.h"

#include <gtest/gtest.h>

namespace dslaunch::relay_tree_test {
namespace {

size_t RelaysOf(size_t nodes) {
  const size_t fanout = RelayFanout(nodes, std::nullopt);
  return RelayOf(nodes - 1, fanout) + 1;
}

TEST(RelayTreeTest, FlatUpTo512Nodes) {
  EXPECT_EQ(RelayFanout(1, std::nullopt), 0u);
  EXPECT_EQ(RelayFanout(512, std::nullopt), 0u);
  EXPECT_EQ(RelayFanout(513, std::nullopt), 23u);
}

TEST(RelayTreeTest, NeitherTheFrontEndNorARelayHasMoreLinksThanTheRoot) {
  for (size_t nodes = 513; nodes <= 20'000; ++nodes) {
    const size_t fanout = RelayFanout(nodes, std::nullopt);
    EXPECT_LT((fanout - 1) * (fanout - 1), nodes);
    EXPECT_LE(RelaysOf(nodes), fanout) << nodes;
  }
  EXPECT_EQ(RelaysOf(10'000), 100u);
}

TEST(RelayTreeTest, WhatIsAskedForHolds) {
  EXPECT_EQ(RelayFanout(10'000, 0), 0u);
  EXPECT_EQ(RelayFanout(9, 3), 3u);
  EXPECT_EQ(RelayOf(2, 3), 0u);
  EXPECT_EQ(RelayOf(3, 3), 1u);
}

}  // namespace
}  // namespace dslaunch::relay_tree_test
