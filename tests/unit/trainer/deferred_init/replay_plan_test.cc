#include "trainer/deferred_init/replay_plan.h"

#include <gtest/gtest.h>

namespace dslaunch::replay_plan_test {
namespace {

using Runs = std::vector<bool>;
using LastSteps = std::vector<std::optional<size_t>>;

TEST(ReplayPlanTest, SkipsUnusedStepsExceptRandomDraws) {
  const std::vector<DeferredStep> steps = {
      {{}, {0}, false},  // allocates tensor 0
      {{}, {1}, true},   // draws all of tensor 1
      {{}, {2}, true},   // draws tensor 2
      {{}, {3}, false},  // makes a constant
  };
  const ReplayPlan plan = PlanReplay(steps, 4, {2});
  EXPECT_EQ(plan.runs, (Runs{false, true, true, false}));
  EXPECT_EQ(plan.last_step, (LastSteps{{}, 1, 2, {}}));
  EXPECT_EQ(PlanReplay(steps, 4, {}).runs, (Runs{false, true, true, false}));
}

TEST(ReplayPlanTest, RunsStepsOfWantedValues) {
  const std::vector<DeferredStep> steps = {
      {{}, {0}, false},      // makes a mask
      {{}, {1}, false},      // makes a tensor that is not used again
      {{0}, {0}, false},     // changes a part of the mask
      {{0}, {2}, false},     // computes a result from the mask
      {{0}, {0}, false},     // changes the mask later, which is not needed
      {{2, 2}, {2}, false},  // changes a part of the result
  };
  const ReplayPlan plan = PlanReplay(steps, 3, {2});
  EXPECT_EQ(plan.runs, (Runs{true, false, true, true, false, true}));
  EXPECT_EQ(plan.last_step, (LastSteps{3, {}, 5}));
  EXPECT_EQ(PlanReplay(steps, 3, {0}).runs, (Runs{true, false, true, false, true, false}));
}

TEST(ReplayPlanTest, RunsStepsOnWhichDrawsDepend) {
  const std::vector<DeferredStep> steps = {
      {{}, {0}, false},  // makes probabilities
      {{0}, {1}, true},  // draws a number of values that may depend on the probabilities
      {{1}, {2}, false},
  };
  const ReplayPlan plan = PlanReplay(steps, 3, {});
  EXPECT_EQ(plan.runs, (Runs{true, true, false}));
  EXPECT_EQ(plan.last_step, (LastSteps{1, 1, {}}));
}

}  // namespace
}  // namespace dslaunch::replay_plan_test
