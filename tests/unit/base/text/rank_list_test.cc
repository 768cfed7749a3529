#include "base/text/rank_list.h"

#include <gtest/gtest.h>

namespace dslaunch::rank_list_test {
namespace {

TEST(RankRanges, JoinsNeighboursIntoRanges) {
  EXPECT_EQ(RankRanges({5}, ","), "5");
  EXPECT_EQ(RankRanges({0, 1}, ","), "0-1");
  EXPECT_EQ(RankRanges({0, 1, 2, 5, 7, 8}, ", "), "0-2, 5, 7-8");
}

TEST(RankRanges, ShortensLongLists) {
  std::vector<int> even;
  for (int rank = 0; rank < 200; rank += 2) even.push_back(rank);
  EXPECT_EQ(RankRanges(even, ","), "0,2,4,6,8,10,12,14 and 92 more");
}

}  // namespace
}  // namespace dslaunch::rank_list_test
