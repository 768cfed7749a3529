#include "cli/relay/launcher_node_command.h"

#include <gmock/gmock.h>

namespace dslaunch::launcher_node_command_test {
namespace {

using ::testing::Contains;
using ::testing::Not;

const NodeTarget kNode{"n3", "n3", 0, ""};

TEST(LauncherNodeCommandTest, SrunStartsOneTaskWithoutItsPlace) {
  const LauncherNodeCommand command({Launcher::kSlurm, {"srun", "--jobid=41"}});
  const auto words = command.CommandLine(kNode, "x");
  for (const char* word : {"srun", "--jobid=41", "--overlap", "--ntasks=1", "--nodelist=n3",
                           "SLURM_PROCID", "SLURM_NTASKS"})
    EXPECT_THAT(words, Contains(word));
  EXPECT_THAT(words, Not(Contains("--input=none")));
  EXPECT_EQ(words[words.size() - 3], "/bin/sh");
  EXPECT_EQ(words.back(), "x");
  EXPECT_EQ(command.TryThis(kNode), "srun --jobid=41 --overlap -w n3 true");
  EXPECT_EQ(command.Name(), "srun");
}

TEST(LauncherNodeCommandTest, DistinguishesScriptsFailureFromSruns) {
  const LauncherNodeCommand command({Launcher::kSlurm, {"srun"}});
  EXPECT_FALSE(command.HasFailedItself(97 << 8));  // 97: the node has no agent
  EXPECT_FALSE(command.HasFailedItself(98 << 8));  // 98: the agent cannot be installed
  EXPECT_TRUE(command.HasFailedItself(1 << 8));
  EXPECT_TRUE(command.HasFailedItself(9));
}

}  // namespace
}  // namespace dslaunch::launcher_node_command_test
