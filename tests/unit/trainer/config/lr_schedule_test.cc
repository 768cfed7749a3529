#include "trainer/config/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dslaunch::lr_schedule_test {
namespace {

constexpr double kBase = 0.1;

double Lr(const LrSchedule& schedule, int64_t updates) {
  return ScheduledLr(schedule, kBase, updates);
}

TEST(LrScheduleTest, ConstantKeepsOptimizersRate) {
  EXPECT_EQ(Lr(ConstantLr{}, 12345), kBase);
  EXPECT_FALSE(ScheduledMomentum(ConstantLr{}, 1));
}

TEST(LrScheduleTest, WarmupIsLogarithmicByDefault) {
  const WarmupLr warmup{.min_lr = 0.01, .warmup = {.num_steps = 100}};
  EXPECT_EQ(Lr(warmup, 0), 0.01);
  EXPECT_EQ(Lr(warmup, 1), 0.01);
  EXPECT_NEAR(Lr(warmup, 10), 0.01 + 0.09 / 2, 1e-12) << "ln 10 is half of ln 100";
  EXPECT_NEAR(Lr(warmup, 100), kBase, 1e-12);
  EXPECT_EQ(Lr(warmup, 5000), kBase);
}

TEST(LrScheduleTest, WarmupRisesLinearlyOnRequest) {
  const WarmupLr warmup{.max_lr = 0.5, .warmup = {.num_steps = 10, .linear = true}};
  EXPECT_NEAR(Lr(warmup, 6), 0.25, 1e-12);
  EXPECT_EQ(Lr(warmup, 11), 0.5);
}

TEST(LrScheduleTest, OneStepWarmupReachesMaximumAtStepTwo) {
  const WarmupLr warmup{.max_lr = 1, .warmup = {.num_steps = 1}};
  EXPECT_EQ(Lr(warmup, 1), 0);
  EXPECT_EQ(Lr(warmup, 2), 1);
}

TEST(LrScheduleTest, WarmupDecayEndsAtZeroAndStaysThere) {
  const WarmupDecayLr decay{
      .max_lr = 1, .warmup = {.num_steps = 10, .linear = true}, .total_num_steps = 110};
  EXPECT_NEAR(Lr(decay, 11), 1, 1e-12);
  EXPECT_NEAR(Lr(decay, 61), 0.5, 1e-12);
  EXPECT_EQ(Lr(decay, 111), 0);
  EXPECT_EQ(Lr(decay, 1000), 0);
}

TEST(LrScheduleTest, WarmupCosineScalesOptimizersRate) {
  const WarmupCosineLr cosine{
      .cos_min_ratio = 0.1, .warmup = {.num_steps = 10, .linear = true}, .total_num_steps = 110};
  EXPECT_EQ(Lr(cosine, 0), 0);
  EXPECT_NEAR(Lr(cosine, 6), kBase / 2, 1e-12);
  EXPECT_NEAR(Lr(cosine, 60), kBase * 0.55, 1e-12) << "half way down";
  EXPECT_NEAR(Lr(cosine, 5000), kBase * 0.1, 1e-12) << "does not rise again";
}

TEST(LrScheduleTest, OneCycleMovesMomentumAgainstRate) {
  const OneCycle cycle{.min_lr = 0.1,
                       .max_lr = 1.1,
                       .first_step_size = 10,
                       .second_step_size = 20,
                       .decay_step_size = 5,
                       .decay_lr_rate = 1};
  EXPECT_EQ(Lr(cycle, 0), 0.1);
  EXPECT_EQ(ScheduledMomentum(cycle, 0), 0.8);
  EXPECT_NEAR(Lr(cycle, 5), 0.6, 1e-12);
  EXPECT_NEAR(*ScheduledMomentum(cycle, 5), 0.85, 1e-12);
  EXPECT_NEAR(Lr(cycle, 10), 1.1, 1e-12);
  EXPECT_NEAR(*ScheduledMomentum(cycle, 10), 0.8, 1e-12);
  EXPECT_NEAR(Lr(cycle, 20), 0.6, 1e-12);
  EXPECT_NEAR(Lr(cycle, 30), 0.1, 1e-12);
  EXPECT_NEAR(Lr(cycle, 35), 0.05, 1e-12) << "one decay interval";
  EXPECT_NEAR(*ScheduledMomentum(cycle, 35), 0.9, 1e-12);
}

TEST(LrScheduleTest, OneCycleRisesAndFallsInStairs) {
  const OneCycle cycle{.min_lr = 0,
                       .max_lr = 1,
                       .first_step_size = 10,
                       .second_step_size = 10,
                       .first_stairs = 2,
                       .second_stairs = 5};
  EXPECT_EQ(Lr(cycle, 4), 0);
  EXPECT_EQ(Lr(cycle, 5), 0.5);
  EXPECT_EQ(Lr(cycle, 10), 1);
  EXPECT_NEAR(Lr(cycle, 11), 0.8, 1e-12);
}

TEST(LrScheduleTest, RangeTestRisesContinuouslyOrInStairs) {
  LrRangeTest test{.min_lr = 0.01, .step_size = 10, .step_rate = 2};
  EXPECT_NEAR(Lr(test, 15), 0.01 * 4, 1e-12);
  test.staircase = true;
  EXPECT_NEAR(Lr(test, 15), 0.01 * 3, 1e-12);
}

TEST(LrScheduleTest, StepLrMultipliesByGammaAfterEachStepSize) {
  const StepLr steps{.step_size = 3, .gamma = 0.5};
  EXPECT_EQ(Lr(steps, 2), kBase);
  EXPECT_EQ(Lr(steps, 3), kBase / 2);
  EXPECT_EQ(Lr(steps, 9), kBase / 8);
}

TEST(LrScheduleTest, CosineRestartsAfterEachCycle) {
  const CosineAnnealingWarmRestarts same{.t_0 = 10};
  EXPECT_NEAR(Lr(same, 5), kBase / 2, 1e-12);
  EXPECT_EQ(Lr(same, 1'000'000'000'000), kBase);
  const CosineAnnealingWarmRestarts longer{.t_0 = 10, .t_mult = 2, .eta_min = 0.02};
  EXPECT_NEAR(Lr(longer, 20), 0.06, 1e-12) << "half way through the second cycle";
  EXPECT_EQ(Lr(longer, 30), kBase);
}

}  // namespace
}  // namespace dslaunch::lr_schedule_test
