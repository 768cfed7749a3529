#include "agent/node/kept_result.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/support/temp_dir.h"

namespace dslaunch::kept_result_test {
namespace {

using ::testing::HasSubstr;

class KeptResultTest : public ::testing::Test {
 protected:
  KeptResultTest() { result_.set_exit_code(7); }

  TempDir dir_;
  pb::JobResult result_;
  const std::vector<std::string> seconds_ = SecondResultFolders({dir_.path()}, "job", 3);
};

TEST_F(KeptResultTest, KeepsResultInJobFolder) {
  const std::string folder = dir_ / "job";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const auto place = KeepResult(result_, folder, seconds_);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(*place, folder);
  EXPECT_EQ(FindResult(folder, seconds_)->exit_code(), 7);
  EXPECT_FALSE(FindResult("", seconds_));
}

// The job's folder may be unusable because its disk is full or its file server cannot be reached.
TEST_F(KeptResultTest, UsesSecondFolderIfJobFolderIsMissing) {
  const auto place = KeepResult(result_, dir_ / "missing", seconds_);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(*place, dir_ / "job.3.result");
  EXPECT_EQ(FindResult(dir_ / "missing", seconds_)->exit_code(), 7);
  EXPECT_EQ(FindResult("", seconds_)->exit_code(), 7);
  EXPECT_FALSE(FindResult("", SecondResultFolders({dir_.path()}, "job", 2)));
  const auto nowhere = KeepResult(result_, dir_ / "missing", {});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message, HasSubstr("/missing/result.json"));
}

TEST_F(KeptResultTest, IgnoresResultThatOthersMayHaveWritten) {
  ASSERT_TRUE(KeepResult(result_, dir_ / "missing", seconds_).ok());
  ASSERT_EQ(chmod(seconds_.front().c_str(), 0777), 0);
  EXPECT_FALSE(FindResult("", seconds_));
}

}  // namespace
}  // namespace dslaunch::kept_result_test
