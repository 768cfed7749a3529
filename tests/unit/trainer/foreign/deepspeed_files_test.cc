#include "trainer/foreign/deepspeed_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch::deepspeed_files_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(SortDeepSpeedFiles, SortsRanksByNumber) {
  const DeepSpeedFiles files = SortDeepSpeedFiles(
      {"bf16_zero_pp_rank_10_mp_rank_00_optim_states.pt",
       "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt",
       "zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
       "rng_state_0.pth", "zero_pp_rank_x_mp_rank_00_optim_states.pt", "latest"},
      "folder");
  EXPECT_EQ(files.model, "mp_rank_00_model_states.pt");
  EXPECT_THAT(files.models, ElementsAre(Pair(0, DeepSpeedModelFile(0))));
  EXPECT_THAT(files.optimizer, ElementsAre(Pair(0, DeepSpeedOptimizerFile(0, false))));
  EXPECT_THAT(files.bf16_optimizer, ElementsAre(Pair(2, DeepSpeedOptimizerFile(2, true)),
                                                Pair(10, DeepSpeedOptimizerFile(10, true))));
  EXPECT_THAT(files.tensor_parallel, IsEmpty());
}

TEST(SortDeepSpeedFiles, NamesFileOfTensorParallelRank) {
  EXPECT_EQ(SortDeepSpeedFiles({"mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"}, "f")
                .tensor_parallel,
            "mp_rank_01_model_states.pt");
  EXPECT_EQ(SortDeepSpeedFiles({"zero_pp_rank_0_mp_rank_03_optim_states.pt"}, "f").tensor_parallel,
            "zero_pp_rank_0_mp_rank_03_optim_states.pt");
}

TEST(WhatIs, FollowsLatestFromTrainersFolder) {
  const TempDir folder;
  EXPECT_EQ(WhatIs(folder.path()), std::nullopt);
  folder.Write("pytorch_model.bin", "");
  EXPECT_EQ(WhatIs(folder.path()), ForeignKind::kStateDict);
  folder.Write("latest", "global_step3\n");
  std::filesystem::create_directories(folder / "global_step3/zero/scale");
  folder.Write("global_step3/mp_rank_00_model_states.pt", "");
  EXPECT_EQ(WhatIs(folder.path()), ForeignKind::kDeepSpeed);
  folder.Write("global_step3/zero/scale/fp32.pt", "");
  EXPECT_EQ(WhatIs(folder / "global_step3/"), ForeignKind::kUniversal);
}

TEST(WhatIs, IgnoresLatestThatNamesNoCheckpoint) {
  const TempDir folder;
  std::filesystem::create_directories(folder / "other");
  folder.Write("other/mp_rank_00_model_states.pt", "");
  std::filesystem::create_directories(folder / "runs/step_000003");
  for (const char* tag : {"../other", "step_000003", "step_000004"}) {
    folder.Write("runs/latest", tag);
    EXPECT_EQ(WhatIs(folder / "runs"), std::nullopt) << tag;
  }
}

}  // namespace
}  // namespace dslaunch::deepspeed_files_test
