#include "cli/output/progress_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::progress_view_test {
namespace {

using std::chrono::milliseconds;
using testing::Optional;

using TimePoint = ProgressView::TimePoint;

StatusLine Step(int64_t step, int64_t total, std::optional<double> loss = std::nullopt,
                std::optional<double> samples_per_s = std::nullopt) {
  StatusLine status;
  status.event = StatusLine::Event::kStep;
  status.step = step;
  status.total_steps = total;
  status.loss = loss;
  status.samples_per_s = samples_per_s;
  return status;
}

TimePoint At(int ms) { return TimePoint() + milliseconds(ms); }

TEST(ProgressView, ShowsStepLossRateAndTimeLeft) {
  ProgressView view(true);
  EXPECT_THAT(view.Update(Step(0, 1000, 2.302585, 0), At(0)),
              Optional(std::string("step 0/1000  loss 2.303  0 samples/s")));
  EXPECT_THAT(view.Update(Step(120, 1000, 0.312, 5120.4), At(6136)),
              Optional(std::string("step 120/1000  loss 0.312  5120 samples/s  time left 45 s")));
  EXPECT_THAT(view.Update(Step(1000, 1000, 0.1, 12.345), At(60'000)),
              Optional(std::string("step 1000/1000  loss 0.1  12.3 samples/s")));
}

TEST(ProgressView, OmitsUnknownValues) {
  ProgressView view(false);
  EXPECT_THAT(view.Update(Step(1, 0), At(0)), Optional(std::string("step 1")));
  StatusLine ready;
  ready.event = StatusLine::Event::kReady;
  EXPECT_EQ(view.Update(ready, At(9000)), std::nullopt);
}

TEST(ProgressView, ShowsLongTimeLeftInHours) {
  ProgressView view(true);
  view.Update(Step(0, 100'000), At(0));
  EXPECT_THAT(view.Update(Step(1, 100'001), At(1000)),
              Optional(std::string("step 1/100001  time left 27 h 46 min 40 s")));
}

TEST(ProgressView, SmoothsTimeLeftWhenRateChanges) {
  ProgressView view(true);
  for (int i = 0; i <= 100; ++i) view.Update(Step(i, 10'000), At(i * 100));  // 10 steps/s for 10 s
  std::optional<std::string> text =
      view.Update(Step(110, 10'000), At(10'000 + 200));  // a short burst of 50 steps/s
  ASSERT_TRUE(text);
  EXPECT_THAT(*text,
              // 9890 steps are left, at 10.8 steps/s, a rate between 10 and 50.
              testing::EndsWith("time left 15 min 17 s"));
  for (int i = 1; i <= 60; ++i)
    text = view.Update(Step(110 + 20 * i, 10'000), At(10'200 + i * 1000));
  EXPECT_THAT(*text,
              // 8690 steps are left, at 20 steps/s after a minute at that rate.
              testing::EndsWith("time left 7 min 15 s"));
}

TEST(ProgressView, LiveLineUpdatesAtMostTenTimesPerSecond) {
  ProgressView view(true);
  int shown = 0;
  for (int ms = 0; ms < 10'000; ++ms) shown += view.Update(Step(ms, 1'000'000), At(ms)).has_value();
  EXPECT_EQ(shown, 100);
}

TEST(ProgressView, PlainLinesAppearEveryFiveSecondsOrTenth) {
  ProgressView slow(false);
  std::vector<int> shown_at;
  for (int ms = 0; ms <= 20'000; ms += 100) {
    if (slow.Update(Step(ms / 100, 1'000'000), At(ms))) shown_at.push_back(ms);
  }
  EXPECT_THAT(shown_at, testing::ElementsAre(0, 5000, 10'000, 15'000, 20'000));

  ProgressView fast(false);
  std::vector<int64_t> shown_steps;
  for (int64_t step = 1; step <= 100; ++step) {
    if (fast.Update(Step(step, 100), At(static_cast<int>(step)))) shown_steps.push_back(step);
  }
  EXPECT_THAT(shown_steps, testing::ElementsAre(1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100));
  EXPECT_EQ(fast.Last(), std::nullopt);
}

TEST(ProgressView, LastReturnsUnshownStateOnce) {
  ProgressView view(false);
  view.Update(Step(1, 0), At(0));
  EXPECT_EQ(view.Update(Step(7, 0), At(100)), std::nullopt);
  EXPECT_THAT(view.Last(), Optional(std::string("step 7")));
  EXPECT_EQ(view.Last(), std::nullopt);
}

// A step is shown once, although another rank may report it before rank 0 does.
TEST(ProgressView, ShowsEachStepOnce) {
  ProgressView view(false);
  EXPECT_NE(view.Update(Step(1, 1000, 2.31), At(0)), std::nullopt);
  EXPECT_EQ(view.Update(Step(1, 1000, 2.3), At(6000)), std::nullopt);
  EXPECT_EQ(view.Last(), std::nullopt);
}

TEST(ProgressView, ShowsEarlierStepAfterRestart) {
  ProgressView view(false);
  view.Update(Step(50, 1000), At(0));
  view.Update(Step(90, 1000), At(1000));
  EXPECT_THAT(view.Update(Step(10, 1000), At(1100)), Optional(std::string("step 10/1000")));
}

TEST(ProgressView, BarFillsAvailableWidth) {
  ProgressView view(true);
  EXPECT_EQ(view.Line(80), "");
  view.Update(Step(500, 1000, 0.5, 100), At(0));
  EXPECT_EQ(view.Line(200),
            "step 500/1000  [===============>              ]  50%  loss 0.5  100 samples/s");
  EXPECT_EQ(view.Line(60), "step 500/1000  [======>     ]  50%  loss 0.5  100 samples/s");
  EXPECT_EQ(view.Line(60).size(), 59u);
  EXPECT_EQ(view.Line(50), "step 500/1000  loss 0.5  100 samples/s");
  view.Update(Step(1000, 1000, 0.5, 100), At(1000));
  EXPECT_EQ(view.Line(60), "step 1000/1000  [===========] 100%  loss 0.5  100 samples/s");
  view.Update(Step(1, 0), At(2000));
  EXPECT_EQ(view.Line(80), "step 1");
}

TEST(ProgressView, ShowsRateInTokensIfReported) {
  ProgressView view(true);
  StatusLine status = Step(1, 0, std::nullopt, 10);
  status.tokens_per_s = 10'240;
  EXPECT_THAT(view.Update(status, At(0)), Optional(std::string("step 1  10240 tokens/s")));
}

}  // namespace
}  // namespace dslaunch::progress_view_test
