#include "cli/transport/child_process.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/os/subprocess.h"

namespace dslaunch::child_process_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Deadline Soon() { return Deadline::After(milliseconds(10'000)); }

TEST(FindProgramTest, FindsProgramLikeShell) {
  EXPECT_EQ(FindProgram("/bin/sh"), "/bin/sh");
  EXPECT_EQ(FindProgram("sh").substr(FindProgram("sh").size() - 3), "/sh");
  EXPECT_EQ(FindProgram("no-such-program"), "");
  EXPECT_EQ(FindProgram("/etc/passwd"), "");
  EXPECT_EQ(FindProgram("/etc"), "");
  EXPECT_EQ(FindProgram(""), "");
}

TEST(FindProgramTest, IgnoresCurrentFolderInPath) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::string path = std::getenv("PATH");
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "downloaded";
  std::filesystem::create_directories(folder / "bin");
  for (const char* name : {"ours", "bin/ours"}) {
    std::filesystem::copy_file("/bin/sh", folder / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  std::filesystem::current_path(folder);
  for (const char* elements : {":/bin", "/bin:", "/bin::/usr/bin", ".", "bin"}) {
    setenv("PATH", elements, 1);
    EXPECT_EQ(FindProgram("ours"), "") << elements;
  }
  setenv("PATH", (folder / "bin").c_str(), 1);
  EXPECT_EQ(FindProgram("ours"), folder / "bin/ours");
  setenv("PATH", path.c_str(), 1);
  std::filesystem::current_path(before);
}

TEST(RunForOutputTest, ReturnsOutput) {
  const Result<std::string> output = RunForOutput({"/bin/sh", "-c", "cat; printf 'a\\nb'"}, Soon());
  ASSERT_TRUE(output.ok()) << output.error().message;
  EXPECT_EQ(*output, "a\nb");
  EXPECT_EQ(RunForOutput({"/usr/bin/head", "-c", "3000", "/dev/zero"}, Soon(), 1000)->size(),
            1000u);
}

TEST(RunForOutputTest, ErrorContainsStatusAndStderr) {
  const Result<std::string> output =
      RunForOutput({"/bin/sh", "-c", "echo why >&2; exit 3"}, Soon());
  ASSERT_FALSE(output.ok());
  EXPECT_THAT(output.error().message, AllOf(HasSubstr("exit status 3"), HasSubstr("why")));
  EXPECT_THAT(RunForOutput({"/nonexistent"}, Soon()).error().message, HasSubstr("No such file"));
  EXPECT_THAT(RunForOutput({"/bin/sh", "-c", "kill -9 $$"}, Soon()).error().message,
              HasSubstr("SIGKILL"));
}

TEST(RunForOutputTest, KillsProgramAtDeadline) {
  const auto start = Clock::now();
  const Result<std::string> output =
      RunForOutput({"/bin/sleep", "100"}, Deadline::After(milliseconds(200)));
  EXPECT_LT(Clock::now() - start, milliseconds(5000));
  EXPECT_EQ(output.error().code, ExitCode::kTimedOut);
}

}  // namespace
}  // namespace dslaunch::child_process_test
