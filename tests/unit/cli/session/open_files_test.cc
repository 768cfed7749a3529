#include "cli/session/open_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::open_files_test {
namespace {

TEST(CheckOpenFilesTest, RefusesLimitTooLowForNodes) {
  const auto refused = CheckOpenFiles(8, {.limit = 40, .open = 3});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ExitCode::kUnavailable);
  EXPECT_EQ(refused.error().message,
            "dslaunch may open 40 files at once, and needs 56 for 8 nodes; raise the limit: "
            "ulimit -n 56 or more");
  EXPECT_TRUE(CheckOpenFiles(8, {.limit = 56, .open = 3}).ok());
  EXPECT_TRUE(CheckOpenFiles(1, {.limit = 1024, .open = 20}).ok());
  EXPECT_TRUE(CheckOpenFiles(1, {}).ok()) << "the limit is not known";
}

}  // namespace
}  // namespace dslaunch::open_files_test
