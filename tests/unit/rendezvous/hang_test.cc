#include "rendezvous/hang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::hang_test {
namespace {

using Kind = HangDecision::Kind;
using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Clock::time_point At(int seconds) { return Clock::time_point(milliseconds(1000 * seconds)); }

// Returns ranks that made these steps, the last at second 0, and that need 1 s per step.
std::vector<RankSteps> Ranks(const std::vector<uint64_t>& steps) {
  std::vector<RankSteps> ranks;
  for (const uint64_t step : steps) {
    RankSteps rank;
    rank.rank = static_cast<uint32_t>(ranks.size());
    rank.step = rank.steps_made = step;
    rank.step_at = At(0);
    rank.median_step = microseconds(1'000'000);
    ranks.push_back(rank);
  }
  return ranks;
}

HangDecision Decide(int at_second, const std::vector<RankSteps>& ranks) {
  return DecideHang(At(at_second), ranks, {milliseconds(60'000)});
}

TEST(HangTest, NamesTheRankThatIsBehind) {
  EXPECT_EQ(Decide(59, Ranks({8, 7, 8})).kind, Kind::kNone);
  const HangDecision decision = Decide(60, Ranks({8, 7, 8}));
  EXPECT_EQ(decision.kind, Kind::kHang);
  EXPECT_THAT(decision.ranks, ElementsAre(1u));
  EXPECT_EQ(decision.reason,
            "no rank made a step for 60 s: rank 1 is stuck at step 7, others are at step 8");
}

TEST(HangTest, NamesAllRanksIfAllWaitAtOneStep) {
  const HangDecision decision = Decide(61, Ranks({8, 8, 8}));
  EXPECT_EQ(decision.kind, Kind::kHang);
  EXPECT_THAT(decision.ranks, ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(decision.reason, HasSubstr("all wait at step 8"));
}

TEST(HangTest, WaitsForFiveUsualSteps) {
  std::vector<RankSteps> ranks = Ranks({8, 7});
  for (RankSteps& rank : ranks) rank.median_step = microseconds(30'000'000);
  EXPECT_EQ(Decide(149, ranks).kind, Kind::kNone);
  EXPECT_EQ(Decide(150, ranks).kind, Kind::kHang);
}

TEST(HangTest, ReportsNoHangWhileOneRankMakesSteps) {
  std::vector<RankSteps> ranks = Ranks({8, 7});
  ranks[0].step_at = At(90);
  EXPECT_EQ(Decide(100, ranks).kind, Kind::kNone);
}

TEST(HangTest, ReportsNoHangBeforeTheFirstStep) {
  EXPECT_EQ(Decide(1000, {}).kind, Kind::kNone);
  EXPECT_EQ(Decide(1000, Ranks({0, 0})).kind, Kind::kNone);
}

TEST(HangTest, IgnoresRanksThatHaveExited) {
  std::vector<RankSteps> ranks = Ranks({3, 8, 8});
  ranks[0].ended = true;
  ranks[1].step_at = ranks[2].step_at = At(90);
  EXPECT_EQ(Decide(100, ranks).kind, Kind::kNone);
  EXPECT_THAT(Decide(150, ranks).ranks, ElementsAre(1u, 2u));
  ranks[1].ended = ranks[2].ended = true;
  EXPECT_EQ(Decide(1000, ranks).kind, Kind::kNone);
}

TEST(HangTest, FindsStragglerByItsComputingTime) {
  std::vector<RankSteps> ranks = Ranks({20, 20, 20, 20});
  for (RankSteps& rank : ranks) rank.median_compute = microseconds(100'000);
  ranks[2].median_compute = microseconds(149'999);
  EXPECT_EQ(Decide(1, ranks).kind, Kind::kNone);
  ranks[2].median_compute = microseconds(150'000);
  const HangDecision decision = Decide(1, ranks);
  EXPECT_EQ(decision.kind, Kind::kStraggler);
  EXPECT_THAT(decision.ranks, ElementsAre(2u));
  EXPECT_EQ(
      decision.reason,
      "rank 2 is slow: 150.0 ms of its own work in a step, the median of all ranks is 100.0 ms");
}

TEST(HangTest, FindsSlowerOfTwoByItsStepTime) {
  std::vector<RankSteps> ranks = Ranks({20, 20});
  ranks[1].median_step = microseconds(1'600'000);
  ranks[0].median_compute =
      microseconds(1);  // not comparable, because the other rank does not report its time
  EXPECT_THAT(Decide(1, ranks).ranks, ElementsAre(1u));
  EXPECT_THAT(Decide(1, ranks).reason, HasSubstr("1600.0 ms for a step"));
}

TEST(HangTest, ReportsStragglerAgainOnlyWhenTwiceAsSlow) {
  std::vector<RankSteps> ranks = Ranks({20, 20});
  ranks[1].median_step = microseconds(1'600'000);
  ranks[1].reported_slow = Decide(1, ranks).slowness;
  EXPECT_EQ(Decide(1, ranks).kind, Kind::kNone);
  ranks[1].median_step = microseconds(3'200'000);
  EXPECT_EQ(Decide(1, ranks).kind, Kind::kStraggler);
}

// Simulates a first run on a laptop, with more ranks than cores and steps of some milliseconds.
TEST(HangTest, IgnoresShortStepsAndSharedCores) {
  std::vector<RankSteps> ranks = Ranks({20, 20, 20, 20});
  for (RankSteps& rank : ranks) rank.median_compute = microseconds(5'000);
  ranks[2].median_compute = microseconds(19'999);
  EXPECT_EQ(Decide(1, ranks).kind, Kind::kNone);
  ranks[2].median_compute = microseconds(20'000);
  EXPECT_EQ(Decide(1, ranks).kind, Kind::kStraggler);
  for (RankSteps& rank : ranks) rank.shares_cores = true;
  ranks[2].median_compute = microseconds(500'000);
  EXPECT_EQ(Decide(1, ranks).kind, Kind::kNone);
}

TEST(HangTest, NeedsTenStepsToFindAStraggler) {
  std::vector<RankSteps> ranks = Ranks({20, 20});
  ranks[1].median_step = microseconds(9'000'000);
  ranks[1].steps_made = 9;
  EXPECT_EQ(Decide(1, ranks).kind, Kind::kNone);
}

}  // namespace
}  // namespace dslaunch::hang_test
