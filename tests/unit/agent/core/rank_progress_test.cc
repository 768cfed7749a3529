#include "agent/core/rank_progress.h"

#include <gtest/gtest.h>

namespace dslaunch::rank_progress_test {
namespace {

StatusLine Step(int64_t step, double compute_s = 0) {
  StatusLine line;
  line.event = StatusLine::Event::kStep;
  line.step = step;
  if (compute_s > 0) line.compute_s = compute_s;
  return line;
}

TEST(RankProgressTest, OmitsProgramsThatReportNoSteps) {
  RankProgressTracker tracker;
  tracker.OnStatus(StatusLine(), Clock::now());
  EXPECT_FALSE(tracker.Report(0, Clock::now()));
}

TEST(RankProgressTest, ReportsStepAndMedianTime) {
  RankProgressTracker tracker;
  Clock::time_point now;
  for (int i = 1; i <= 50; ++i) {
    tracker.OnStatus(Step(i, 0.04), now);
    now += milliseconds(i % 10 == 0 ? 5000 : 100);  // every tenth step is slowed by a checkpoint
  }
  const auto report = tracker.Report(7, now + milliseconds(1));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->rank(), 7u);
  EXPECT_EQ(report->step(), 50u);
  EXPECT_EQ(report->median_step_us(), 100'000u);
  EXPECT_EQ(report->median_compute_us(), 40'000u);
  EXPECT_EQ(report->since_us(), 5'001'000u);
  EXPECT_FALSE(report->ended());
}

TEST(RankProgressTest, MedianCountsOnlyNewestSteps) {
  RankProgressTracker tracker;
  Clock::time_point now;
  for (int i = 1; i <= 30; ++i) tracker.OnStatus(Step(i), now += milliseconds(1000));
  for (int i = 31; i <= 51; ++i) tracker.OnStatus(Step(i), now += milliseconds(10));
  EXPECT_EQ(tracker.Report(0, now)->median_step_us(), 10'000u);
}

TEST(RankProgressTest, AcceptsSparseRepeatedAndRestartedSteps) {
  RankProgressTracker tracker;
  Clock::time_point now;
  tracker.OnStatus(Step(10), now);
  EXPECT_EQ(tracker.Report(0, now)->median_step_us(), 0u);
  tracker.OnStatus(Step(20), now += milliseconds(1000));
  EXPECT_EQ(tracker.Report(0, now)->median_step_us(), 100'000u);
  tracker.OnStatus(Step(20), now += milliseconds(500));  // repeats the last report
  EXPECT_EQ(tracker.Report(0, now)->since_us(), 500'000u);
  tracker.OnStatus(Step(1), now);
  EXPECT_EQ(tracker.Report(0, now)->step(), 1u);
  EXPECT_EQ(tracker.Report(0, now)->since_us(), 0u);
  EXPECT_EQ(tracker.Report(0, now)->median_step_us(), 100'000u);
}

}  // namespace
}  // namespace dslaunch::rank_progress_test
