#include "trainer/parallel/server/stale_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace dslaunch::stale_sync_test {
namespace {

using Turn = StaleSync::Turn;
using ::testing::ElementsAre;

constexpr int64_t kFar = std::numeric_limits<int64_t>::max();

// Returns the turn of each rank after it has made `made` steps.
std::vector<Turn> Turns(const std::vector<int64_t>& made, int64_t staleness) {
  StaleSync bounded(static_cast<int>(made.size()), staleness, 0);
  bounded.HoldAfter(kFar);
  std::vector<Turn> turns;
  for (size_t rank = 0; rank < made.size(); ++rank) {
    for (int64_t step = 1; step <= made[rank]; ++step) {
      bounded.OnBegun(static_cast<int>(rank));
      EXPECT_TRUE(bounded.OnMade(static_cast<int>(rank), step));
    }
  }
  for (size_t rank = 0; rank < made.size(); ++rank)
    turns.push_back(bounded.TurnOf(static_cast<int>(rank)));
  return turns;
}

TEST(StaleSyncTest, RankWaitsAtStalenessBound) {
  const Turn go = Turn::kGo, wait = Turn::kWait;
  EXPECT_THAT(Turns({0, 0, 0}, 0), ElementsAre(go, go, go));
  EXPECT_THAT(Turns({1, 0, 1}, 0), ElementsAre(wait, go, wait));
  EXPECT_THAT(Turns({1, 0, 2}, 1), ElementsAre(go, go, wait));
  EXPECT_THAT(Turns({5, 4, 2}, 2), ElementsAre(wait, go, go));
  EXPECT_THAT(Turns({9}, 0), ElementsAre(go));
}

void Make(StaleSync& sync, int rank) {
  ASSERT_EQ(sync.TurnOf(rank), Turn::kGo);
  sync.OnBegun(rank);
  ASSERT_TRUE(sync.OnMade(rank, sync.made(rank) + 1));
}

TEST(StaleSyncTest, NoRankBeginsBeforeHoldAfter) {
  StaleSync sync(2, 1, 10);
  EXPECT_EQ(sync.TurnOf(0), Turn::kWait);
  EXPECT_EQ(sync.made(1), 10);
  sync.HoldAfter(11);
  Make(sync, 0);
  EXPECT_EQ(sync.TurnOf(0), Turn::kWait);
  EXPECT_FALSE(sync.AllMade(11));
  Make(sync, 1);
  EXPECT_TRUE(sync.AllMade(11));
  sync.HoldAfter(12);
  EXPECT_EQ(sync.TurnOf(0), Turn::kGo);
}

TEST(StaleSyncTest, NoRankWaitsForLostOrLeftRanks) {
  StaleSync sync(3, 0, 0);
  sync.HoldAfter(kFar);
  Make(sync, 0);
  Make(sync, 1);
  EXPECT_EQ(sync.TurnOf(0), Turn::kWait);
  EXPECT_EQ(sync.Slowest(), 2);
  sync.OnBegun(2);
  EXPECT_FALSE(sync.NoRankInStep());
  sync.OnLost(2);
  EXPECT_TRUE(sync.NoRankInStep());
  EXPECT_EQ(sync.TurnOf(0), Turn::kGo);
  EXPECT_TRUE(sync.AllMade(1));
  EXPECT_THAT(sync.lost(), ElementsAre(2));
  Make(sync, 0);
  sync.OnLeft(1);
  EXPECT_EQ(sync.TurnOf(0), Turn::kGo);
  EXPECT_TRUE(sync.Slowest());
  sync.OnLeft(0);
  EXPECT_EQ(sync.Slowest(), std::nullopt);
}

TEST(StaleSyncTest, RejectsStepsOutOfOrder) {
  StaleSync sync(2, 3, 0);
  sync.HoldAfter(kFar);
  EXPECT_FALSE(sync.OnMade(0, 1));  // called before the step begins
  sync.OnBegun(0);
  EXPECT_FALSE(sync.OnMade(0, 2));
  EXPECT_TRUE(sync.OnMade(0, 1));
  EXPECT_FALSE(sync.OnMade(0, 2));
  EXPECT_EQ(sync.made(0), 1);
}

TEST(StaleSyncTest, NoRankBeginsAfterStop) {
  StaleSync sync(2, 3, 0);
  sync.HoldAfter(kFar);
  sync.OnBegun(0);
  sync.Stop();
  EXPECT_EQ(sync.TurnOf(1), Turn::kStop);
  EXPECT_TRUE(sync.OnMade(0, 1));
  EXPECT_EQ(sync.TurnOf(0), Turn::kStop);
}

// In any order of the ranks' events, the bound holds, some rank may always continue, and all ranks
// finish.
TEST(StaleSyncTest, RandomOrdersKeepStalenessBoundAndFinish) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 5);
    const auto staleness = static_cast<int64_t>(random() % 4);
    const int64_t meeting = 1 + static_cast<int64_t>(random() % 6), last = 12;
    StaleSync sync(ranks, staleness, 0);
    sync.HoldAfter(meeting);
    std::vector<bool> in_step(static_cast<size_t>(ranks)), is_lost(in_step.size());
    int lost = 0;
    for (int event = 0; event < 100'000 && !sync.AllMade(last); ++event) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const auto at = static_cast<size_t>(rank);
      if (sync.AllMade(meeting)) sync.HoldAfter(last);
      if (is_lost[at]) continue;
      if (lost + 1 < ranks && random() % 50 == 0) {
        sync.OnLost(rank);
        is_lost[at] = true;
        ++lost;
      } else if (in_step[at]) {
        ASSERT_TRUE(sync.OnMade(rank, sync.made(rank) + 1));
        in_step[at] = false;
      } else if (sync.TurnOf(rank) == Turn::kGo) {
        sync.OnBegun(rank);
        in_step[at] = true;
        int64_t slowest = kFar;
        for (int other = 0; other < ranks; ++other) {
          if (!is_lost[static_cast<size_t>(other)]) slowest = std::min(slowest, sync.made(other));
        }
        ASSERT_LE(sync.made(rank) - slowest, staleness);
        ASSERT_LT(sync.made(rank), sync.AllMade(meeting) ? last : meeting);
      }
    }
    ASSERT_TRUE(sync.AllMade(last));
  }
}

}  // namespace
}  // namespace dslaunch::stale_sync_test
