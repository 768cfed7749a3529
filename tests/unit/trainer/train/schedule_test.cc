#include "trainer/train/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::schedule_test {
namespace {

Recipe MakeRecipe(int64_t micro, int64_t accumulation, int64_t ranks) {
  Recipe recipe;
  recipe.engine.batch = {micro * accumulation * ranks, micro, accumulation};
  recipe.run.epochs = 2;
  return recipe;
}

TEST(ScheduleTest, ConvertsEpochsToSteps) {
  const Schedule schedule = MakeSchedule(MakeRecipe(64, 1, 4), 60000, 4);
  EXPECT_EQ(schedule.batches_per_epoch, 235);  // including the last batch, which is not full
  EXPECT_EQ(schedule.total_steps, 470);
  EXPECT_EQ(schedule.left_out, 0);
  EXPECT_EQ(schedule.EpochOf(1), 1);
  EXPECT_EQ(schedule.EpochOf(235), 1);
  EXPECT_EQ(schedule.EpochOf(236), 2);
  EXPECT_TRUE(schedule.EndsEpoch(235));
  EXPECT_FALSE(schedule.EndsEpoch(234));
  EXPECT_TRUE(schedule.EndsEpoch(470));
}

TEST(ScheduleTest, DropsPartialBatchesOnRequest) {
  Recipe recipe = MakeRecipe(64, 1, 4);
  recipe.engine.dataloader_drop_last = true;
  EXPECT_EQ(MakeSchedule(recipe, 60000, 4).batches_per_epoch, 234);
  recipe.data.drop_last = true;
  EXPECT_EQ(MakeSchedule(recipe, 4 * 128 + 3, 4).batches_per_epoch, 2);
  recipe.data.drop_last = false;  // 129 samples per rank, one of which does not fill a batch
  EXPECT_EQ(MakeSchedule(recipe, 4 * 128 + 3, 4).batches_per_epoch, 2);
  recipe.engine.dataloader_drop_last = false;
  EXPECT_EQ(MakeSchedule(recipe, 4 * 128 + 3, 4).batches_per_epoch, 3);
}

TEST(ScheduleTest, AccumulationRunsAcrossEpochs) {
  const Schedule schedule =
      MakeSchedule(MakeRecipe(10, 4, 1), 50, 1);  // 5 micro-batches per epoch, 4 per step
  EXPECT_EQ(schedule.total_steps, 2);
  EXPECT_EQ(schedule.left_out, 2);
  EXPECT_EQ(schedule.EpochOf(1), 1);
  EXPECT_EQ(schedule.EpochOf(2), 2);
}

TEST(ScheduleTest, ExchangesLossesAtPrintsAndEpochEnds) {
  Recipe recipe = MakeRecipe(64, 1, 4);
  recipe.engine.steps_per_print = 7;
  const Schedule quiet = MakeSchedule(recipe, 60000, 4);
  EXPECT_FALSE(quiet.ExchangesAfter(1));
  EXPECT_TRUE(quiet.ExchangesAfter(7));
  EXPECT_TRUE(quiet.ExchangesAfter(235));
  EXPECT_TRUE(quiet.ExchangesAfter(470));
  recipe.run.metrics_jsonl = "m.jsonl";
  EXPECT_TRUE(MakeSchedule(recipe, 60000, 4).ExchangesAfter(1));
}

TEST(ScheduleTest, PositionIsIndependentOfRanks) {
  // 60,000 samples in micro-batches of 4,500 over all ranks make 14 micro-batches per epoch and 3
  // per step.
  const Schedule one = MakeSchedule(MakeRecipe(4500, 3, 1), 60000, 1);
  for (const int64_t step : {1, 4, 5, 9}) {
    const Position position = one.PositionAfter(step);
    const Schedule three = MakeSchedule(MakeRecipe(1500, 3, 3), 60000, 3, position);
    EXPECT_EQ(three.total_steps, one.total_steps);
    EXPECT_EQ(three.first_batch, 3 * step);
    EXPECT_EQ(three.EpochOf(step + 1), one.EpochOf(step + 1));
    EXPECT_EQ(three.PositionAfter(9).samples_in_epoch, one.PositionAfter(9).samples_in_epoch);
  }
  EXPECT_EQ(one.PositionAfter(4).epoch, 0);
  EXPECT_EQ(one.PositionAfter(4).samples_in_epoch, 54000);
  EXPECT_EQ(one.PositionAfter(5).epoch, 1);
  EXPECT_EQ(one.PositionAfter(5).samples_in_epoch, 4500);
}

TEST(ScheduleTest, ContinuesAtSameSamplesWithOtherBatchSize) {
  // 100 steps of 256 samples equal 200 steps of 128. The rest of the two epochs is counted in steps
  // of the new size.
  const Schedule half = MakeSchedule(MakeRecipe(64, 1, 2), 60000, 2, {100, 0, 25600});
  EXPECT_EQ(half.first_sample, 25600);
  EXPECT_EQ(half.first_batch, 200);
  EXPECT_EQ(half.total_steps, 100 + 2 * 469 - 200);
  EXPECT_EQ(half.EpochOf(101), 1);
}

TEST(ScheduleTest, KeepsPositionInsideMicroBatch) {
  // 34,400 samples are left, which make 67 micro-batches of 512 and a smaller one.
  const Schedule larger = MakeSchedule(MakeRecipe(256, 1, 2), 60000, 2, {100, 0, 25600});
  EXPECT_EQ(larger.first_sample, 25600);
  EXPECT_EQ(larger.first_batch, 118 - 68);
  EXPECT_EQ(larger.total_steps, 100 + 68 + 118);
  EXPECT_EQ(larger.PositionAfter(101).samples_in_epoch, 25600 + 512);
  EXPECT_EQ(larger.EpochOf(168), 1);
  EXPECT_EQ(larger.PositionAfter(168).epoch, 1);
  EXPECT_EQ(larger.PositionAfter(168).samples_in_epoch, 0);
  EXPECT_EQ(larger.PositionAfter(169).samples_in_epoch, 512);
}

TEST(ScheduleTest, FinishedRunHasNoStepsLeft) {
  const Schedule done = MakeSchedule(MakeRecipe(64, 1, 4), 60000, 4, {470, 2, 0});
  EXPECT_EQ(done.total_steps, 470);
  EXPECT_EQ(done.last_step(), 470);
  Recipe shorter = MakeRecipe(64, 1, 4);
  shorter.run.epochs.reset();
  shorter.run.steps = 10;
  EXPECT_EQ(MakeSchedule(shorter, 60000, 4, {470, 2, 0}).last_step(), 470);
}

TEST(ScheduleTest, ExchangesLossesBeforeSave) {
  Recipe recipe = MakeRecipe(64, 1, 4);
  recipe.run.save_every = 3;
  const Schedule schedule = MakeSchedule(recipe, 60000, 4);
  EXPECT_TRUE(schedule.SavesAfter(6));
  EXPECT_TRUE(schedule.ExchangesAfter(6));
  EXPECT_FALSE(schedule.SavesAfter(7));
}

TEST(ScheduleTest, RefusesDataSetBelowGlobalBatch) {
  Recipe recipe = MakeRecipe(16, 1, 4);
  EXPECT_EQ(MakeSchedule(recipe, 64, 4).total_steps, 2);
  ExpectRefused([&] { MakeSchedule(recipe, 63, 4); }, ExitCode::kBadInput,
                testing::HasSubstr("63 training samples are fewer than one global batch"));
  recipe.data.type = DataConfig::Type::kText;
  recipe.data.block_size = 128;
  ExpectRefused([&] { MakeSchedule(recipe, 63, 4); }, ExitCode::kBadInput,
                testing::HasSubstr("63 training samples of 128 tokens are fewer"));
}

}  // namespace
}  // namespace dslaunch::schedule_test
