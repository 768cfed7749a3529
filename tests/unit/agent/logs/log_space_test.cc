#include "agent/logs/log_space.h"

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace dslaunch::log_space_test {
namespace {

using ::testing::HasSubstr;

TEST(LogSpace, FullDiskPreventsStartAndExplainsFailure) {
  const LogSpace full = {100 << 10, uint64_t{1} << 30};
  const auto refused = CheckLogSpace("node1", "/logs", full);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ExitCode::kIo);
  EXPECT_THAT(refused.error().message, HasSubstr("node1: only 100 KiB are free"));
  EXPECT_THAT(refused.error().message, HasSubstr("--log_dir"));
  EXPECT_THAT(FullDiskEvidence("/logs", full).value_or(""),
              HasSubstr("the disk of its logs is full (100 KiB free in /logs)"));
}

TEST(LogSpace, AcceptsSmallAndUnknownSpace) {
  for (const std::optional<LogSpace>& space :
       {std::optional<LogSpace>(), std::optional(LogSpace{}),
        std::optional(LogSpace{uint64_t{1} << 20, uint64_t{1} << 30})}) {
    EXPECT_TRUE(CheckLogSpace("node1", "/logs", space).ok());
    EXPECT_FALSE(FullDiskEvidence("/logs", space));
    EXPECT_FALSE(FullDiskNotice("node1", "/logs", space));
  }
}

TEST(LogSpace, WarnsAboutFullDiskAfterARanksEnd) {
  EXPECT_THAT(FullDiskNotice("node1", "/logs", LogSpace{0, uint64_t{1} << 30}).value_or(""),
              HasSubstr("node1: only 0 KiB are free where the logs go (/logs), so lines of ranks "
                        "may be missing there and here; free space there"));
}

TEST(LogSpace, ReadsSpaceOfTheFolder) {
  const TempDir dir;
  const auto space = ReadLogSpace(dir.path());
  ASSERT_TRUE(space);
  EXPECT_GT(space->total_bytes, 0u);
  EXPECT_FALSE(ReadLogSpace(dir / "missing"));
}

}  // namespace
}  // namespace dslaunch::log_space_test
