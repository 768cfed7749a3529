#include "trainer/profile/intervals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/random_seed.h"

namespace dslaunch::intervals_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(IntervalsTest, UnionIsSortedAndDisjoint) {
  EXPECT_THAT(Union({{5, 8}, {1, 3}, {2, 4}, {6, 7}, {9, 9}, {8, 9}}),
              ElementsAre(Interval{1, 4}, Interval{5, 9}));
  EXPECT_THAT(Union({{3, 3}, {4, 2}}), IsEmpty());
}

TEST(IntervalsTest, IntersectionIsInBothSets) {
  EXPECT_THAT(Intersection({{0, 10}, {20, 30}}, {{2, 4}, {8, 22}, {29, 40}}),
              ElementsAre(Interval{2, 4}, Interval{8, 10}, Interval{20, 22}, Interval{29, 30}));
  EXPECT_THAT(Intersection({{0, 5}}, {{5, 9}}), IsEmpty());
}

// Compares the operations on intervals with the same operations on sets of integers.
TEST(IntervalsTest, MatchesSetsOfIntegers) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> both[2];
    bool in[2][64] = {};
    for (int side = 0; side < 2; ++side) {
      for (int i = 0; i < 6; ++i) {
        const int64_t begin = random.Between(0, 59), end = begin + random.Between(0, 4);
        both[side].push_back({begin, end});
        for (int64_t at = begin; at < end; ++at) in[side][at] = true;
      }
    }
    int64_t first = 0, common = 0;
    for (int at = 0; at < 64; ++at) {
      first += in[0][at];
      common += in[0][at] && in[1][at];
    }
    EXPECT_EQ(Length(Union(both[0])), first);
    EXPECT_EQ(Length(Intersection(Union(both[0]), Union(both[1]))), common);
  }
}

}  // namespace
}  // namespace dslaunch::intervals_test
