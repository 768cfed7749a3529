#include "trainer/train/window.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dslaunch::window_test {
namespace {

RankWindow OfLoss(double loss) {
  RankWindow window;
  window.loss = loss;
  window.seconds = 0.5;
  return window;
}

TEST(WindowTest, RoundTripsThroughNumbers) {
  RankWindow window = OfLoss(1.0 / 3);
  window.diverged = Divergence{7, 2, INFINITY, 5};
  window.bad_steps = 6;
  window.stop = StopRequest::kTimeLimit;
  window.memory = {1, 2, 6, 3, 4, 7, 8, int64_t{1} << 50};
  const std::vector<double> numbers = window.Numbers();
  ASSERT_EQ(static_cast<int64_t>(numbers.size()), RankWindow::kNumbers);
  const RankWindow back = RankWindow::FromNumbers(numbers.data(), 2);
  EXPECT_EQ(back.Numbers(), numbers);
  EXPECT_EQ(back.diverged->rank, 2);
  EXPECT_EQ(back.memory.peak_rss, int64_t{1} << 50);
  EXPECT_FALSE(RankWindow::FromNumbers(OfLoss(1).Numbers().data(), 0).diverged);
}

TEST(WindowTest, CombinesLossByMeanAndMemoryByMaximum) {
  std::vector<RankWindow> ranks = {OfLoss(1), OfLoss(4)};
  ranks[0].memory = {10, 20, 7, 0, 1, 3, 0, 5};
  ranks[1].memory = {9, 30, 2, 0, 0, 4, 0, 6};
  ranks[1].seconds = 9;
  const AllWindows all = Combine(ranks);
  EXPECT_EQ(all.loss, 2.5);
  EXPECT_EQ(all.seconds, 0.5) << "rank 0's";
  EXPECT_EQ(all.memory.parameters, 10);
  EXPECT_EQ(all.memory.gradients, 30);
  EXPECT_EQ(all.memory.buckets, 7);
  EXPECT_EQ(all.memory.activations, 4);
  EXPECT_EQ(all.memory.buffers, 1);
  EXPECT_EQ(all.memory.peak_rss, 6);
  EXPECT_FALSE(all.diverged);
  EXPECT_EQ(all.stop.request, StopRequest::kNone);
}

TEST(WindowTest, NamesEarliestBadLoss) {
  std::vector<RankWindow> ranks(4);
  ranks[1].diverged = Divergence{9, 1, NAN};
  ranks[2].diverged = Divergence{3, 2, -NAN};
  ranks[3].diverged = Divergence{3, 3, INFINITY};
  ranks[1].bad_steps = 2;
  const AllWindows all = Combine(ranks);
  ASSERT_TRUE(all.diverged);
  EXPECT_EQ(DivergenceMessage(*all.diverged), "the loss of rank 2 is nan at step 3");
  EXPECT_EQ(all.bad_steps, 2);
}

TEST(WindowTest, ExplainsSkippedStepsByNonFiniteLossIfAny) {
  std::vector<RankWindow> ranks(2);
  ranks[0].diverged = Divergence{3, 0, 1.5, 5};
  EXPECT_EQ(DivergenceMessage(*Combine(ranks).diverged),
            "training has diverged: 5 steps in a row, from step 3 on, made no update, because a "
            "gradient is not finite");
  ranks[1].diverged = Divergence{3, 1, NAN, 5};
  EXPECT_EQ(DivergenceMessage(*Combine(ranks).diverged),
            "training has diverged: the loss of rank 1 is nan at step 3, and 5 steps in a row made "
            "no update");
}

TEST(WindowTest, StopsIfOneRankRequestsIt) {
  std::vector<RankWindow> ranks(4);
  ranks[2].stop = StopRequest::kSigterm;
  ranks[3].stop = StopRequest::kTimeLimit;
  const AllWindows all = Combine(ranks);
  EXPECT_EQ(StopReason(all.stop), "SIGTERM (rank 2)");
  ranks[1].stop = StopRequest::kSigint;
  EXPECT_EQ(StopReason(Combine(ranks).stop), "SIGINT (rank 1)");
}

TEST(WindowTest, ExchangesAboutEvery100Ms) {
  EXPECT_EQ(StepsUntilExchange(1, 0.5), 1) << "a long step: after each";
  EXPECT_EQ(StepsUntilExchange(64, 0.5), 1) << "steps became longer: at once";
  EXPECT_EQ(StepsUntilExchange(64, 0.001), 100);
  EXPECT_EQ(StepsUntilExchange(0, 0.001), 2) << "one measurement is not believed alone";
  int64_t interval = 0;
  for (int i = 0; i < 8; ++i) interval = StepsUntilExchange(interval, 0.001);
  EXPECT_EQ(interval, 100);
  for (int i = 0; i < 50; ++i) interval = StepsUntilExchange(interval, 0);
  EXPECT_EQ(interval, 10'000) << "bounded, whatever was measured";
  EXPECT_EQ(StepsUntilExchange(10, NAN), 20);
}

}  // namespace
}  // namespace dslaunch::window_test
