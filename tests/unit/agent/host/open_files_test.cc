#include "agent/host/open_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::open_files_test {
namespace {

TEST(OpenFilesTest, NamesLimitThatIsTooLowForTheNodes) {
  const Result<void> checked = CheckOpenFiles("node1", 3, {.limit = 40, .open = 29});
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(checked.error().message,
              testing::StartsWith("node1: its limit of open files is 40, and to host the "
                                  "rendezvous of 3 nodes takes about 44; raise nofile"));
}

TEST(OpenFilesTest, AcceptsAnyLimitForOneNode) {
  EXPECT_TRUE(CheckOpenFiles("node1", 1, {.limit = 31, .open = 29}).ok());
  EXPECT_TRUE(CheckOpenFiles("node1", 3, {.limit = 44, .open = 29}).ok());
}

}  // namespace
}  // namespace dslaunch::open_files_test
