#include "rendezvous/standstill.h"

#include <gtest/gtest.h>

namespace dslaunch::standstill_test {
namespace {

using Kind = StandstillDecision::Kind;
using std::chrono::seconds;

constexpr StandstillOptions kOptions = {.setup = milliseconds(1'800'000),
                                        .hang = milliseconds(600'000),
                                        .freshness = milliseconds(4'000),
                                        .world_size = 2};

RankLife Still(uint32_t rank, int still_s, uint32_t looks = 12) {
  RankLife life;
  life.rank = rank;
  life.still = seconds(still_s);
  life.looks = looks;
  life.judged = true;
  life.connected = true;
  return life;
}

StandstillDecision Decide(const std::vector<RankLife>& lives,
                          const StandstillOptions& options = kOptions) {
  return DecideStandstill(Clock::time_point(), lives, options);
}

TEST(StandstillTest, ReportsWhenNoRankMovedForLimit) {
  EXPECT_EQ(Decide({Still(0, 700), Still(1, 597)}).kind, Kind::kNone);
  EXPECT_EQ(Decide({Still(0, 700), Still(1, 598)}).kind, Kind::kSoon);
  const StandstillDecision decision = Decide({Still(0, 700), Still(1, 600)});
  EXPECT_EQ(decision.kind, Kind::kStandstill);
  EXPECT_EQ(decision.reason, "no rank has moved for 600 s (--hang_s 600)");
}

TEST(StandstillTest, NeedsSixLooks) {
  EXPECT_EQ(Decide({Still(0, 700, 5), Still(1, 700)}).kind, Kind::kNone);
  EXPECT_EQ(Decide({Still(0, 700, 6), Still(1, 700)}).kind, Kind::kStandstill);
}

TEST(StandstillTest, AppliesSetupLimitUntilRanksExchangeBytes) {
  std::vector<RankLife> lives = {Still(0, 700), Still(1, 700)};
  for (RankLife& life : lives) life.connected = false;
  EXPECT_EQ(Decide(lives).kind, Kind::kNone);
  for (RankLife& life : lives) life.still = seconds(1'800);
  EXPECT_EQ(Decide(lives).reason,
            "no rank has moved for 1800 s since the start (--hang_s setup=1800)");
}

TEST(StandstillTest, LimitOfZeroDisables) {
  StandstillOptions options = kOptions;
  options.hang = milliseconds(0);
  EXPECT_EQ(Decide({Still(0, 9'000), Still(1, 9'000)}, options).kind, Kind::kNone);
}

TEST(StandstillTest, JudgesRunningRanksOnly) {
  RankLife ended = Still(1, 0);
  ended.ended = true;
  EXPECT_EQ(Decide({Still(0, 700), ended}).kind, Kind::kNone) << "it has just ended";
  ended.reported_at = Clock::time_point() - seconds(600);
  EXPECT_EQ(Decide({Still(0, 700), ended}).kind, Kind::kStandstill);
  RankLife also_ended = ended;
  also_ended.rank = 0;
  EXPECT_EQ(Decide({also_ended, ended}).kind, Kind::kNone);
}

TEST(StandstillTest, JudgesNothingWithoutFreshReportOfEachRank) {
  EXPECT_EQ(Decide({Still(0, 700)}).kind, Kind::kNone);
  RankLife unreadable = Still(1, 700);
  unreadable.judged = false;
  EXPECT_EQ(Decide({Still(0, 700), unreadable}).kind, Kind::kNone);
  RankLife stale = Still(1, 700);
  stale.reported_at = Clock::time_point() - seconds(5);
  EXPECT_EQ(Decide({Still(0, 700), stale}).kind, Kind::kNone);
}

TEST(StandstillTest, LeadIsQuarterOfShortLimit) {
  EXPECT_EQ(StandstillLead(seconds(600)), seconds(2));
  EXPECT_EQ(StandstillLead(seconds(4)), seconds(1));
}

TEST(StandstillTest, NeverJudgesSingleRank) {
  StandstillOptions options = kOptions;
  options.world_size = 1;
  EXPECT_EQ(Decide({Still(0, 9'000)}, options).kind, Kind::kNone);
}

TEST(StandstillWatchTest, ReportsAgainOnlyAfterSignOfLife) {
  StandstillWatch watch;
  const auto report = [&](uint32_t rank, int still_s) {
    pb::Stillness stillness;
    stillness.set_rank(rank);
    stillness.set_still_us(static_cast<uint64_t>(still_s) * 1'000'000);
    stillness.set_looks(12);
    stillness.set_readable(true);
    stillness.set_connected(true);
    watch.OnReport(stillness, Clock::time_point());
  };
  report(0, 600);
  report(1, 600);
  EXPECT_EQ(watch.Check(Clock::time_point(), kOptions).kind, Kind::kStandstill);
  watch.OnReported();
  report(0, 650);
  EXPECT_TRUE(watch.is_reported());
  report(1, 0);
  EXPECT_FALSE(watch.is_reported());
}

}  // namespace
}  // namespace dslaunch::standstill_test
