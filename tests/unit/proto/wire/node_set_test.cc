#include "proto/wire/node_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::node_set_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

pb::NodeSet Bounds(std::initializer_list<uint32_t> bounds) {
  pb::NodeSet set;
  for (const uint32_t bound : bounds) set.add_bounds(bound);
  return set;
}

TEST(NodeSetTest, ReturnsTheIndexesItWasMadeOf) {
  const std::vector<std::vector<uint32_t>> sets = {{},        {0},       {7},
                                                   {0, 1, 2}, {0, 2, 4}, {1, 2, 5, 6, 9}};
  for (const std::vector<uint32_t>& indexes : sets)
    EXPECT_EQ(IndexesOf(ToNodeSet(indexes)), indexes);
}

TEST(NodeSetTest, LongRunTakesTwoNumbers) {
  std::vector<uint32_t> indexes(10'000);
  for (uint32_t i = 0; i < indexes.size(); ++i) indexes[i] = i;
  EXPECT_THAT(ToNodeSet(indexes).bounds(), ElementsAre(0, 10'000));
}

TEST(NodeSetTest, IgnoresMalformedBounds) {
  EXPECT_THAT(IndexesOf(Bounds({3})), IsEmpty());
  EXPECT_THAT(IndexesOf(Bounds({5, 2})), IsEmpty());
  EXPECT_THAT(IndexesOf(Bounds({2, 4, 0, 5})), ElementsAre(2, 3, 4));
  EXPECT_THAT(IndexesOf(Bounds({0, 0xffffffff, 0, 0xffffffff})), SizeIs(kMaxNodesInSet));
}

}  // namespace
}  // namespace dslaunch::node_set_test
