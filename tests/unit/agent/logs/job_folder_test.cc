#include "agent/logs/job_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

TEST(JobFolderTest, IsPrivateAndLaidOutByNodeAttemptAndRank) {
  const TempDir dir;
  const auto folder = JobFolder::Create(dir.path() + "/logs", "job", "node/1", {});
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(folder->path(), dir.path() + "/logs/job/nodes/node_1");
  const auto rank = folder->MakeRankFolder(2, 13);
  ASSERT_TRUE(rank.ok());
  EXPECT_EQ(*rank, folder->path() + "/attempt_2/rank_13");
  struct stat info {};
  ASSERT_EQ(stat((dir.path() + "/logs/job").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(JobFolderTest, DefaultsToTheUsersStateFolder) {
  const TempDir dir;
  const auto home = JobFolder::Create("", "job", "n", {"HOME=" + dir.path()});
  ASSERT_TRUE(home.ok());
  EXPECT_EQ(home->path(), dir.path() + "/.local/state/dslaunch/jobs/job/nodes/n");
  const auto xdg =
      JobFolder::Create("", "job", "n", {"HOME=/", "XDG_STATE_HOME=" + dir.path() + "/s"});
  ASSERT_TRUE(xdg.ok());
  EXPECT_EQ(xdg->path(), dir.path() + "/s/dslaunch/jobs/job/nodes/n");
}

TEST(JobFolderTest, AFolderThatCannotBeMadeIsNamedWithTheHint) {
  const TempDir dir;
  const auto folder = JobFolder::Create(dir.Write("file", ""), "job", "node1", {});
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ExitCode::kIo);
  EXPECT_NE(folder.error().message.find("node1: cannot make the log folder"), std::string::npos);
  EXPECT_NE(folder.error().message.find("--log_dir"), std::string::npos);
}

}  // namespace
}  // namespace dslaunch
