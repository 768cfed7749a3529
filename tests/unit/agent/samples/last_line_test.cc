#include "agent/samples/last_line.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::last_line_test {
namespace {

TEST(LastLineTest, SkipsBlankLines) {
  EXPECT_EQ(LastLineOf("first\nlast\n\n \t\r\n"), "last");
  EXPECT_EQ(LastLineOf("unfinished"), "unfinished");
  EXPECT_EQ(LastLineOf("\n\n"), "");
  EXPECT_EQ(LastLineOf(""), "");
}

TEST(LastLineTest, ReturnsNewestStateOfProgressBar) {
  EXPECT_EQ(LastLineOf("10%\r20%\r30%"), "30%");
}

TEST(LastLineTest, CutsLongLines) { EXPECT_EQ(LastLineOf(std::string(1000, 'x')).size(), 200u); }

TEST(LastLineTest, ReadsFileThatChangedLast) {
  const TempDir dir;
  EXPECT_EQ(ReadLastLine(dir.path()), "");
  dir.Write("stdout.log", std::string(10'000, '\n') + "out\n");
  EXPECT_EQ(ReadLastLine(dir.path()), "out");
  dir.Write("stderr.log", "err\n");
  using std::filesystem::last_write_time;
  last_write_time(dir / "stderr.log",
                  last_write_time(dir / "stdout.log") + std::chrono::seconds(1));
  EXPECT_EQ(ReadLastLine(dir.path()), "err");
  last_write_time(dir / "stdout.log",
                  last_write_time(dir / "stderr.log") + std::chrono::seconds(1));
  EXPECT_EQ(ReadLastLine(dir.path()), "out");
}

}  // namespace
}  // namespace dslaunch::last_line_test
