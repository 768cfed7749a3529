#include "cli/launchers/srun_command.h"

#include <gmock/gmock.h>

namespace dslaunch::srun_command_test {
namespace {

using ::testing::Contains;
using ::testing::Not;

const NodeTarget kNode{"n3", "n3", 0, ""};

TEST(SrunNodeCommandTest, StartsOneTaskThatDoesNotKnowItsPlace) {
  const SrunNodeCommand command({Engine::kSlurm, {"srun", "--jobid=41"}});
  const auto words = command.CommandLine(kNode, "x");
  for (const char* word : {"srun", "--jobid=41", "--overlap", "--ntasks=1", "--nodelist=n3",
                           "SLURM_PROCID", "SLURM_NTASKS"})
    EXPECT_THAT(words, Contains(word));
  EXPECT_THAT(words, Not(Contains("--input=none")));
  EXPECT_EQ(words[words.size() - 3], "/bin/sh");
  EXPECT_EQ(words.back(), "x");
  EXPECT_EQ(command.TryThis(kNode), "srun --jobid=41 --overlap -w n3 true");
}

TEST(SrunNodeCommandTest, WhatTheScriptEndsWithIsNoFailureOfSruns) {
  const SrunNodeCommand command({Engine::kSlurm, {"srun"}});
  EXPECT_FALSE(command.HasFailedItself(97 << 8));  // the node lacks the agent
  EXPECT_FALSE(command.HasFailedItself(98 << 8));  // and could not be given it
  EXPECT_TRUE(command.HasFailedItself(1 << 8));
  EXPECT_TRUE(command.HasFailedItself(9));
}

}  // namespace
}  // namespace dslaunch::srun_command_test
