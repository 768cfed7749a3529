#include "cli/tune/step_time_model.h"

#include <gtest/gtest.h>

#include "cli/tune/cost_model.h"

namespace dslaunch::step_time_model_test {
namespace {

TuneProblem Problem(int64_t ranks = 4) {
  TuneProblem problem;
  problem.ranks = ranks;
  problem.global_batch = 64;
  problem.recipe[Axis::kMicroBatch] = 16;
  return problem;
}

Candidate Make(int64_t micro_batch, int64_t zero = 0, int64_t recompute = 0, int64_t stages = 1,
               int64_t parts = 1) {
  return {{micro_batch, zero, recompute, 0, stages, parts}};
}

TEST(CostModelTest, CountsRecomputationBubbleAndExchanges) {
  const TuneProblem one = Problem(1);  // one replica, so no exchange
  EXPECT_DOUBLE_EQ(RelativeCost(one, Make(64)), 1 + 0.25 / 64);
  EXPECT_DOUBLE_EQ(RelativeCost(one, Make(64, 0, 1)), (1 + 0.25 / 64) * 4 / 3);
  const TuneProblem two = Problem(2);
  EXPECT_DOUBLE_EQ(RelativeCost(two, Make(16, 0, 0, 2)), (1 + 0.25 / 16) * 5 / 4);
  const TuneProblem four = Problem();
  EXPECT_NEAR(RelativeCost(four, Make(4, 3)) - RelativeCost(four, Make(4)), 0.02 * (12 - 2), 1e-9);
  EXPECT_NEAR(RelativeCost(four, Make(4, 2)) - RelativeCost(four, Make(4, 1)), 0.02 * 3, 1e-9);
}

// With 2 ranks that divide layers, the sums of activations move a third of what 4 ranks move.
TEST(CostModelTest, CountsExchangesOfDividedLayers) {
  const auto cost = [](int64_t ranks, int64_t recompute) {
    const Candidate divided = Make(64, 0, recompute, 1, ranks);  // has one replica
    const double compute = (1 + 0.25 * static_cast<double>(ranks) / 64) * (recompute ? 4.0 / 3 : 1);
    return RelativeCost(Problem(ranks), divided) - compute;
  };
  EXPECT_GT(cost(2, 0), 0);
  EXPECT_NEAR(cost(4, 0), 3 * cost(2, 0), 1e-9);
  EXPECT_NEAR(cost(2, 1), 1.5 * cost(2, 0), 1e-9);
  // Each of two replicas exchanges half of the parameters.
  const TuneProblem four = Problem();
  EXPECT_NEAR(RelativeCost(four, Make(4, 3, 0, 1, 2)) - RelativeCost(four, Make(4, 1, 0, 1, 2)),
              0.02 * (3 * 8 - 2) / 2, 1e-9);
}

TEST(CostModelTest, LargerMicroBatchesCostLess) {
  const TuneProblem problem = Problem();
  EXPECT_GT(RelativeCost(problem, Make(1)), RelativeCost(problem, Make(4)));
  EXPECT_GT(RelativeCost(problem, Make(4)), RelativeCost(problem, Make(16)));
}

TEST(StepTimeModelTest, PredictsMeasuredTime) {
  StepTimeModel model(Problem());
  model.Add(Make(16), 0.5);
  EXPECT_NEAR(model.Predict(Make(16)).seconds, 0.5, 1e-6);
  EXPECT_LT(model.Predict(Make(16)).deviation, 0.03);
  // Other candidates are predicted by the formulas, with more uncertainty.
  const StepTimeModel::Prediction other = model.Predict(Make(16, 0, 1));
  EXPECT_NEAR(other.seconds, 0.5 * 4 / 3, 0.02);
  EXPECT_GT(other.deviation, 0.1);
}

TEST(StepTimeModelTest, LearnsValueOfAxisForOtherCandidates) {
  StepTimeModel model(Problem());
  model.Add(Make(16), 1);
  const double before = model.Predict(Make(8, 1)).seconds;
  model.Add(Make(16, 1), 1.5);  // ZeRO 1 is slow on this machine
  const StepTimeModel::Prediction after = model.Predict(Make(8, 1));
  EXPECT_GT(after.seconds, 1.2 * before);
  EXPECT_LT(after.deviation, model.Predict(Make(8, 2)).deviation);
  EXPECT_NEAR(model.Predict(Make(8)).seconds, before, 0.15 * before);
}

TEST(StepTimeModelTest, TrustsNoisyTrialsLess) {
  StepTimeModel steady(Problem()), noisy(Problem());
  for (StepTimeModel* model : {&steady, &noisy}) model->Add(Make(16), 1);
  steady.Add(Make(16, 1), 1.5);
  noisy.Add(Make(16, 1), 1.5, /*noise=*/0.4);
  EXPECT_LT(noisy.Predict(Make(16, 1)).seconds, steady.Predict(Make(16, 1)).seconds);
  EXPECT_GT(noisy.Predict(Make(16, 1)).deviation, steady.Predict(Make(16, 1)).deviation);
}

TEST(StepTimeModelTest, SimilarMicroBatchesAreAlike) {
  StepTimeModel model(Problem());
  model.Add(Make(16), 1);
  model.Add(Make(4), 2);
  EXPECT_GT(model.Predict(Make(2)).seconds, 1.4);
  EXPECT_LT(model.Predict(Make(2)).deviation, model.Predict(Make(64)).deviation);
}

}  // namespace
}  // namespace dslaunch::step_time_model_test
