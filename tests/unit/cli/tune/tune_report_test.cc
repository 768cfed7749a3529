#include "cli/tune/tune_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dslaunch::tune_report_test {
namespace {

using ::testing::HasSubstr;

TuneOutcome Outcome() {
  TuneOutcome outcome;
  outcome.problem.ranks = 2;
  outcome.problem.global_batch = 32;
  outcome.problem.recipe[Axis::kMicroBatch] = 16;
  TuneRow recipe{.candidate = outcome.problem.recipe};
  recipe.steps_s = {0.1};
  recipe.trials = 1;
  recipe.peak_bytes = 250'000'000;
  TuneRow best{.candidate = {{8, 1, 0, 0, 1, 1}}};
  best.steps_s = {0.08, 0.08, 0.5};
  best.predicted_s = 0.09;
  TuneRow large{.candidate = {{16, 3, 0, 0, 1, 1}}};
  large.end = TrialEnd::kDoesNotFit;
  large.needs_bytes = 3'100'000'000;
  large.has_bytes = 2'000'000'000;
  TuneRow failed{.candidate = {{16, 0, 0, 0, 2, 1}}};
  failed.end = TrialEnd::kOutOfMemory;
  failed.cause = "rank 0: out of memory: x";
  outcome.rows = {recipe, large, best, failed};
  outcome.best = best;
  outcome.reason = "the time of --budget is used up";
  outcome.untried = 1;
  outcome.dropped = 12;
  outcome.elapsed_s = 61.2;
  return outcome;
}

TEST(TuneReportTest, TableHasFastestFirstAndCauses) {
  EXPECT_EQ(
      TuneTable(Outcome()),
      "micro-batch  ZeRO  recompute  offload  pipeline  tensor  predicted  measured  memory    "
      "result\n"
      "8 x 2        1     no         no       1         1       90 ms      80 ms     -         "
      "chosen\n"
      "16 x 1       0     no         no       1         1       -          100 ms    250.0 MB  "
      "the recipe; 25 % slower\n"
      "16 x 1       3     no         no       1         1       -          -         3.1 GB    "
      "does not fit: needs 3.1 GB of 2.0 GB\n"
      "16 x 2       0     no         no       2         1       -          -         -         "
      "out of memory: rank 0: out of memory: x\n"
      "12 further configurations fell out with these\n"
      "1 configuration not tried\n"
      "the search ended after 1 min 01 s: the time of --budget is used up\n");
}

TEST(TuneReportTest, ChoiceIsComparedWithRecipe) {
  TuneOutcome outcome = Outcome();
  EXPECT_EQ(ChoiceText(outcome),
            "micro-batch 8 x 2, ZeRO 1: 80 ms a step, 20 % less than the recipe's 100 ms");
  outcome.best = outcome.rows[0];
  EXPECT_EQ(ChoiceText(outcome), "micro-batch 16 x 1: 100 ms a step, as the recipe is");
  outcome.best = outcome.rows[2];
  outcome.rows.erase(outcome.rows.begin());
  EXPECT_EQ(ChoiceText(outcome), "micro-batch 8 x 2, ZeRO 1: 80 ms a step");
}

TEST(TuneReportTest, ProgressLineHasPredictionOrCause) {
  const TuneOutcome outcome = Outcome();
  EXPECT_EQ(ProgressLine(outcome.problem, outcome.rows[2], 3),
            "trial 3: micro-batch 8 x 2, ZeRO 1: 80 ms a step (predicted 90 ms), -");
  EXPECT_EQ(ProgressLine(outcome.problem, outcome.rows[1], 2),
            "trial 2: micro-batch 16 x 1, ZeRO 3: does not fit: needs 3.1 GB of 2.0 GB");
}

TEST(TuneReportTest, JsonHasKeysOfChoice) {
  const nlohmann::ordered_json json = TuneJson(Outcome(), "o.yaml");
  EXPECT_EQ(json["best"]["step_s"], 0.08);
  EXPECT_EQ(json["best"]["keys"]["engine.zero_optimization.stage"], 1);
  EXPECT_EQ(json["output"], "o.yaml");
  EXPECT_EQ(json["trials"].size(), 4u);
  EXPECT_EQ(json["trials"][1]["end"], "does_not_fit");
  EXPECT_TRUE(json["trials"][1]["step_s"].is_null());
}

TEST(TuneReportTest, ReportsReasonIfNothingWasFound) {
  TuneOutcome outcome = Outcome();
  outcome.best.reset();
  outcome.rows = {outcome.rows[1]};
  outcome.reason = "no further configuration is possible";
  EXPECT_THAT(NothingFoundText(outcome),
              HasSubstr("no further configuration is possible; the last one, micro-batch 16 x 1, "
                        "ZeRO 3, does not fit"));
}

}  // namespace
}  // namespace dslaunch::tune_report_test
