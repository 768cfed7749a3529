#include "agent/probe/folder_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

pb::FolderSpeed MeasurePath(const std::string& path) {
  pb::MeasuredFolder folder;
  folder.set_path(path);
  return MeasureFolder(folder, milliseconds(20), milliseconds(10'000));
}

TEST(MeasureFolder, LeavesNoFile) {
  const TempDir folder;
  const pb::FolderSpeed speed = MeasurePath(folder.path());
  EXPECT_EQ("", speed.trouble());
  EXPECT_GT(speed.bytes_per_s(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MeasureFolder, UsesNearestParentOfMissingFolder) {
  const TempDir folder;
  EXPECT_EQ(folder.path(), MeasurePath(folder.path() + "/not/here").path());
}

TEST(MeasureFolder, ReportsFolderThatCannotBeWritten) {
  const pb::FolderSpeed speed = MeasurePath("/proc");
  EXPECT_EQ(0u, speed.bytes_per_s());
  EXPECT_THAT(speed.trouble(), testing::Not(testing::IsEmpty()));
  EXPECT_EQ("it is not an absolute path", MeasurePath("logs").trouble());
}

}  // namespace
}  // namespace dslaunch
