#include "agent/core/rank_stillness.h"

#include <gtest/gtest.h>

namespace dslaunch::rank_stillness_test {
namespace {

constexpr milliseconds kInterval(5'000);

RankSigns Idle() {
  RankSigns signs;
  signs.peer_bytes = 1'000;
  signs.store_bytes = 500;
  signs.file_bytes = 40'000;
  signs.own_cpu_ms = 9'000;
  signs.child_cpu_ms = 70;
  signs.processes = 77;
  signs.signature = 5;
  return signs;
}

TEST(ShowsLifeTest, IgnoresActivityOfWaitingPrograms) {
  const RankSigns before = Idle();
  RankSigns after = Idle();
  EXPECT_FALSE(ShowsLife(before, after, kInterval));
  after.own_cpu_ms += 100;  // 2 % of 5 s
  after.child_cpu_ms += 100;
  after.store_bytes += 300;
  after.file_bytes += 300 + 256;
  EXPECT_FALSE(ShowsLife(before, after, kInterval));
}

TEST(ShowsLifeTest, DetectsEachSignOfLife) {
  const auto shows = [](auto change) {
    RankSigns after = Idle();
    change(after);
    return ShowsLife(Idle(), after, kInterval);
  };
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.peer_bytes += 1; }));
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.output_bytes += 1; }));
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.file_bytes += 257; }));
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.own_cpu_ms += 110; }));
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.child_cpu_ms += 110; }));
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.processes = 78; }));
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.signature = 6; }));
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.stopped = true; }));
  // Decreases also count: a connection was closed, and a child has ended.
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.peer_bytes = 0; }));
  EXPECT_TRUE(shows([](RankSigns& signs) { signs.child_cpu_ms = 0; }));
}

TEST(ShowsLifeTest, IgnoresCpuOfRankWithGpu) {
  RankSigns before = Idle();
  before.has_gpu = true;
  RankSigns after = before;
  after.own_cpu_ms += 5'000;
  EXPECT_FALSE(ShowsLife(before, after, kInterval));
  after.child_cpu_ms += 5'000;
  EXPECT_TRUE(ShowsLife(before, after, kInterval));
}

class RankStillnessTest : public ::testing::Test {
 protected:
  pb::Stillness Look(const std::optional<RankSigns>& signs, milliseconds after = kInterval,
                     bool wrote_dump = false) {
    now_ += after;
    stillness_.OnLook(signs, kInterval, now_, wrote_dump);
    return stillness_.Report(3).value_or(pb::Stillness());
  }

  Clock::time_point now_;
  RankStillness stillness_;
};

TEST_F(RankStillnessTest, CountsTimeAndLooksSinceLastSign) {
  EXPECT_FALSE(stillness_.Report(3));
  EXPECT_EQ(Look(Idle()).still_us(), 0u);
  EXPECT_EQ(Look(Idle()).still_us(), 5'000'000u);
  EXPECT_EQ(Look(Idle()).looks(), 2u);
  RankSigns moved = Idle();
  moved.peer_bytes += 1;
  EXPECT_EQ(Look(moved).looks(), 0u);
  const pb::Stillness report = Look(moved);
  EXPECT_EQ(report.rank(), 3u);
  EXPECT_EQ(report.still_us(), 5'000'000u);
  EXPECT_EQ(report.looks(), 1u);
  EXPECT_TRUE(report.readable());
  EXPECT_TRUE(report.connected());
}

TEST_F(RankStillnessTest, KeepsSignSeenAcrossLostLooks) {
  Look(Idle());
  Look(Idle());
  EXPECT_FALSE(Look(std::nullopt).readable());
  RankSigns moved = Idle();
  moved.output_bytes = 1;
  EXPECT_EQ(Look(moved).looks(), 0u);
}

TEST_F(RankStillnessTest, AddsUpCpuTimeOfStarvedRank) {
  RankSigns signs = Idle();
  Look(signs);
  signs.own_cpu_ms += 90;  // 1.8 % of 5 s
  EXPECT_EQ(Look(signs).looks(), 1u);
  signs.own_cpu_ms += 90;
  EXPECT_EQ(Look(signs).looks(), 2u);
  signs.own_cpu_ms += 130;
  EXPECT_EQ(Look(signs).looks(), 0u) << "310 ms in 15 s are more than 2 %";
}

TEST_F(RankStillnessTest, CountsLongGapAsTwoIntervals) {
  Look(Idle());
  EXPECT_EQ(Look(Idle(), std::chrono::hours(1)).still_us(), 10'000'000u);
}

TEST_F(RankStillnessTest, IgnoresDumpThatWasAskedFor) {
  RankSigns signs = Idle();
  Look(signs);
  Look(signs);
  for (uint32_t looks = 2; looks < 5; ++looks) {
    signs.file_bytes += 100'000;
    signs.own_cpu_ms += 900;
    signs.output_bytes += 200;  // PyTorch logs each dump
    EXPECT_EQ(Look(signs, kInterval, /*wrote_dump=*/true).looks(), looks);
  }
  EXPECT_EQ(Look(signs).looks(), 5u) << "of the dump, nothing counts later";
  signs.file_bytes += 100'000;
  EXPECT_EQ(Look(signs).looks(), 0u);
}

TEST_F(RankStillnessTest, SpinningRankMakesNoExchangeIfDigestStays) {
  RankSigns signs = Idle();
  Look(signs);
  signs.exchanges = 7;
  for (int look = 0; look < 3; ++look) {
    signs.own_cpu_ms += 5'000;
    EXPECT_EQ(Look(signs).makes_no_exchange(), look == 2);
  }
  signs.exchanges = 8;
  const pb::Stillness moved = Look(signs);
  EXPECT_FALSE(moved.makes_no_exchange());
  EXPECT_EQ(moved.only_cpu_us(), 0u);
}

TEST_F(RankStillnessTest, IgnoresKeepAliveBytesOfRankWithGpu) {
  RankSigns signs = Idle();
  signs.has_gpu = true;
  Look(signs);
  signs.peer_bytes += 5 * 1'000;
  EXPECT_EQ(Look(signs).looks(), 1u);
  signs.peer_bytes += 50 * 1'000;
  EXPECT_EQ(Look(signs).looks(), 0u);
}

TEST_F(RankStillnessTest, IsNotReadableWithGpuAndWithoutSignature) {
  RankSigns signs = Idle();
  signs.has_gpu = true;
  EXPECT_TRUE(Look(signs).readable());
  signs.signature = 0;
  EXPECT_FALSE(Look(signs).readable());
}

TEST_F(RankStillnessTest, ReportsEndWithoutLook) {
  stillness_.OnEnded();
  EXPECT_TRUE(stillness_.Report(3)->ended());
}

}  // namespace
}  // namespace dslaunch::rank_stillness_test
