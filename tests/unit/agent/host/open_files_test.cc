#include "agent/host/open_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace dslaunch::open_files_test {
namespace {

TEST(OpenFilesTest, NamesTheLimitThatIsTooLowForTheNodes) {
  const Result<void> checked = CheckOpenFiles("node1", 3, 30, 40);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(checked.error().message,
              testing::StartsWith("node1: its limit of open files is 40, and to host the "
                                  "rendezvous of 3 nodes takes about 44; raise nofile"));
}

TEST(OpenFilesTest, AcceptsAnyLimitForOneNode) {
  EXPECT_TRUE(CheckOpenFiles("node1", 1, 30, 31).ok());
  EXPECT_TRUE(CheckOpenFiles("node1", 3, 30, 44).ok());
}

TEST(OpenFilesTest, CountsDescriptorsOfThisProcess) {
  const size_t before = CountOpenFiles();
  const UniqueFd one(::dup(0));
  EXPECT_EQ(CountOpenFiles(), before + 1);
  EXPECT_GT(OpenFileLimit(), before);
}

}  // namespace
}  // namespace dslaunch::open_files_test
