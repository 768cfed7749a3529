#include "agent/logs/job_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temp_dir.h"

namespace dslaunch::job_folder_test {
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

TEST(JobFolderTest, FindsOnlyFoldersOfTheUser) {
  const TempDir dir;
  const std::string base = dir / "logs";
  EXPECT_EQ(*JobFolder::Find(base, "job", "n", {}), "") << "there is none";
  ASSERT_TRUE(JobFolder::Create(base, "job", "n", {}).ok());
  ASSERT_EQ(chmod(base.c_str(), 0777), 0);
  EXPECT_EQ(*JobFolder::Find(base, "job", "n", {}), base + "/job/nodes/n") << "as others share it";
  ASSERT_EQ(chmod((base + "/job/nodes").c_str(), 0777), 0);
  const auto planted = JobFolder::Find(base, "job", "n", {});
  ASSERT_FALSE(planted.ok());
  EXPECT_NE(planted.error().message.find("/job/nodes may be changed by others"), std::string::npos);
  const auto again = JobFolder::Create(base, "job", "n", {});
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("choose another with --log_dir"), std::string::npos);
}

TEST(JobFolderTest, RefusesStateFolderWritableByOthers) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "state");
  ASSERT_EQ(chmod((dir / "state").c_str(), 0777), 0);
  const auto refused = JobFolder::Create("", "job", "n", {"XDG_STATE_HOME=" + (dir / "state")});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("/state may be changed by others; chmod go-w"),
            std::string::npos);
}

TEST(JobFolderTest, NamesFolderThatCannotBeCreated) {
  const TempDir dir;
  const auto folder = JobFolder::Create(dir.Write("file", ""), "job", "node1", {});
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ExitCode::kIo);
  EXPECT_NE(folder.error().message.find("node1: cannot make the log folder"), std::string::npos);
  EXPECT_NE(folder.error().message.find("--log_dir"), std::string::npos);
}

}  // namespace
}  // namespace dslaunch::job_folder_test
