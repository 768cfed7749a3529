#include "trainer/base/by_rank.h"

#include <gtest/gtest.h>

#include <numeric>

namespace dslaunch::by_rank_test {
namespace {

TEST(ByRankTest, GroupsRanksWithEqualValues) {
  const std::vector<std::string> said = {"a", "b", "a", "c"};
  EXPECT_EQ(ByRank(said, [](const std::string& word) { return word; }),
            "ranks 0, 2: a; rank 1: b; rank 3: c");
  EXPECT_EQ(GroupRanks(said).size(), 3u);
}

TEST(ByRankTest, UsesGivenNumbersOfRanks) {
  const std::vector<std::string> said = {"a", "b", "a"};
  EXPECT_EQ(ByRank(said, [](const std::string& word) { return word; }, {4, 5, 6}),
            "ranks 4, 6: a; rank 5: b");
}

TEST(ByRankTest, NamesFirstOfManyRanks) {
  std::vector<size_t> ranks(20);
  std::iota(ranks.begin(), ranks.end(), 0);
  EXPECT_EQ(RankList(ranks), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more");
}

}  // namespace
}  // namespace dslaunch::by_rank_test
