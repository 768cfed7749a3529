#include "trainer/comm/links/host_groups.h"

#include <gtest/gtest.h>

namespace dslaunch::host_groups_test {
namespace {

TEST(HostGroupsTest, HasPartForEachHost) {
  const HostGroups groups({7, 7, 7, 2, 2, 5});
  ASSERT_EQ(groups.parts(), 3U);
  EXPECT_EQ(groups.part(1).first, 3U);
  EXPECT_EQ(groups.part(1).count, 2U);
  EXPECT_EQ(groups.PartOf(2), 0U);
  EXPECT_EQ(groups.PartOf(5), 2U);
  EXPECT_EQ(groups.columns(), 3U);
  EXPECT_EQ(groups.ColumnOf(4), 1U);
}

TEST(HostGroupsTest, EachColumnHasOwnerInEachPart) {
  const HostGroups groups({0, 0, 0, 1, 1, 2});
  EXPECT_EQ(groups.Owner(0, 2), 2U);
  EXPECT_EQ(groups.Owner(1, 1), 4U);
  EXPECT_EQ(groups.Owner(1, 2), 3U) << "a second column of that rank";
  EXPECT_EQ(groups.Owner(2, 1), 5U);
}

// Follows the data that each rank sends. Every other rank must receive it once, from the rank that
// it expects, and every other host must receive it once from outside.
void ExpectForwarding(const std::vector<uint32_t>& nodes) {
  const HostGroups groups(nodes);
  for (size_t from = 0; from < nodes.size(); ++from) {
    std::vector<size_t> times(nodes.size()), arrivals(groups.parts());
    for (size_t by = 0; by < nodes.size(); ++by) {
      for (const size_t to : groups.ReceiversOf(by, from)) {
        ++times[to];
        EXPECT_EQ(groups.SenderTo(to, from), by) << "what rank " << from << " has, to " << to;
        if (groups.PartOf(by) != groups.PartOf(to)) ++arrivals[groups.PartOf(to)];
      }
    }
    for (size_t to = 0; to < nodes.size(); ++to) EXPECT_EQ(times[to], to == from ? 0U : 1U);
    for (size_t part = 0; part < groups.parts(); ++part)
      EXPECT_EQ(arrivals[part], part == groups.PartOf(from) ? 0U : 1U);
  }
}

TEST(HostGroupsTest, ForwardsToEachRankAndEachHostOnce) {
  ExpectForwarding({4, 4, 4});
  ExpectForwarding({0, 0, 0, 1, 1, 1});
  ExpectForwarding({0, 1, 1, 1, 2, 2, 3});
}

void ExpectOnePart(const std::vector<uint32_t>& nodes) {
  const HostGroups groups(nodes);
  ASSERT_EQ(groups.parts(), 1U);
  EXPECT_EQ(groups.part(0).count, nodes.size());
  EXPECT_EQ(groups.columns(), nodes.size());
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    EXPECT_EQ(groups.PartOf(rank), 0U);
    EXPECT_EQ(groups.Owner(0, groups.ColumnOf(rank)), rank);
  }
}

TEST(HostGroupsTest, UsesOnePartWhenHostsSaveNothing) {
  ExpectOnePart({3});
  ExpectOnePart({3, 3, 3});
  ExpectOnePart({0, 1, 2});
  ExpectOnePart({0, 1, 0, 1});
}

}  // namespace
}  // namespace dslaunch::host_groups_test
