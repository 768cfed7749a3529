#include "cli/plan/user_stdin.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::user_stdin_test {
namespace {

using Kind = UserStdin::Kind;

TEST(ReadUserStdinTest, DistinguishesPipesFilesAndNothing) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadUserStdin(null.get()).kind, Kind::kNothing);
  EXPECT_EQ(ReadUserStdin(-1).kind, Kind::kNothing);
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  const UniqueFd reader(fds[0]), writer(fds[1]);
  EXPECT_EQ(ReadUserStdin(reader.get()).kind, Kind::kPipe);
  EXPECT_EQ(ReadUserStdin(reader.get()).shell, "");
}

TEST(ReadUserStdinTest, ReportsOffsetOfFile) {
  TempDir folder;
  const UniqueFd file(::open(folder.Write("list", "a\nb\n").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadUserStdin(file.get()).kind, Kind::kFile);
  EXPECT_EQ(ReadUserStdin(file.get()).offset, 0u);
  char line[2];
  ASSERT_EQ(::read(file.get(), line, 2), 2);
  EXPECT_EQ(ReadUserStdin(file.get()).offset, 2u);
  ASSERT_EQ(::read(file.get(), line, 2), 2);
  EXPECT_EQ(ReadUserStdin(file.get()).kind, Kind::kNothing) << "it is at its end";
}

}  // namespace
}  // namespace dslaunch::user_stdin_test
