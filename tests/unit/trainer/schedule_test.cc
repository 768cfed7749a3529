#include "trainer/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/train_error.h"

namespace dslaunch {
namespace {

Recipe MakeRecipe(int64_t micro, int64_t accumulation, int64_t ranks) {
  Recipe recipe;
  recipe.engine.batch = {micro * accumulation * ranks, micro, accumulation};
  recipe.run.epochs = 2;
  return recipe;
}

TEST(ScheduleTest, EpochsBecomeSteps) {
  const Schedule schedule = MakeSchedule(MakeRecipe(64, 1, 4), 60000, 4);
  EXPECT_EQ(schedule.batches_per_epoch, 235);  // the last one is not full
  EXPECT_EQ(schedule.total_steps, 470);
  EXPECT_EQ(schedule.EpochOf(1), 1);
  EXPECT_EQ(schedule.EpochOf(235), 1);
  EXPECT_EQ(schedule.EpochOf(236), 2);
  EXPECT_TRUE(schedule.EndsEpoch(235));
  EXPECT_FALSE(schedule.EndsEpoch(234));
  EXPECT_TRUE(schedule.EndsEpoch(470));
}

TEST(ScheduleTest, DroppingTails) {
  Recipe recipe = MakeRecipe(64, 1, 4);
  recipe.engine.dataloader_drop_last = true;
  EXPECT_EQ(MakeSchedule(recipe, 60000, 4).batches_per_epoch, 234);
  recipe.data.drop_last = true;
  EXPECT_EQ(MakeSchedule(recipe, 4 * 128 + 3, 4).batches_per_epoch, 2);
  recipe.data.drop_last = false;  // 129 samples a rank, of which one does not fill a batch
  EXPECT_EQ(MakeSchedule(recipe, 4 * 128 + 3, 4).batches_per_epoch, 2);
  recipe.engine.dataloader_drop_last = false;
  EXPECT_EQ(MakeSchedule(recipe, 4 * 128 + 3, 4).batches_per_epoch, 3);
}

TEST(ScheduleTest, AccumulationRunsAcrossEpochs) {
  const Schedule schedule =
      MakeSchedule(MakeRecipe(10, 4, 1), 50, 1);  // 5 micro-batches an epoch, 4 a step
  EXPECT_EQ(schedule.total_steps, 2);
  EXPECT_EQ(schedule.EpochOf(1), 1);
  EXPECT_EQ(schedule.EpochOf(2), 2);
}

TEST(ScheduleTest, WhenLossesAreShared) {
  Recipe recipe = MakeRecipe(64, 1, 4);
  recipe.engine.steps_per_print = 7;
  const Schedule quiet = MakeSchedule(recipe, 60000, 4);
  EXPECT_FALSE(quiet.SharesLossAfter(1));
  EXPECT_TRUE(quiet.SharesLossAfter(7));
  EXPECT_TRUE(quiet.SharesLossAfter(10));
  EXPECT_TRUE(quiet.SharesLossAfter(235));
  recipe.run.metrics_jsonl = "m.jsonl";
  EXPECT_TRUE(MakeSchedule(recipe, 60000, 4).SharesLossAfter(1));
}

TEST(ScheduleTest, ADataSetBelowOneGlobalBatchIsRefused) {
  EXPECT_EQ(MakeSchedule(MakeRecipe(16, 1, 4), 64, 4).total_steps, 2);
  try {
    MakeSchedule(MakeRecipe(16, 1, 4), 63, 4);
    FAIL() << "accepted";
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("63 training samples are fewer than one global batch"));
  }
}

}  // namespace
}  // namespace dslaunch
