#include "agent/host/pid_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace dslaunch::pid_file_test {
namespace {

using ::testing::HasSubstr;

std::string Content(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

TEST(PidFileTest, RemovesFileWithItsObject) {
  EXPECT_EQ(PidFile::PathFor(45), "/tmp/45.deepspeed");
  const TempDir dir;
  {
    Result<PidFile> made = PidFile::Create(dir / "f", 123);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const PidFile failed_over = *std::move(made);
    EXPECT_EQ(Content(dir / "f"), "123");
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "f"));
}

TEST(PidFileTest, ReplacesOnlyFilesOfExitedProcesses) {
  const TempDir dir;
  const std::string path = dir.Write("f", std::to_string(getpid()));
  const auto taken = PidFile::Create(path, 1);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ExitCode::kIo);
  EXPECT_THAT(taken.error().message,
              HasSubstr("--save_pid: " + path + ": the file exists, and its process"));
  dir.Write("f", "999999999");  // greater than any pid
  EXPECT_TRUE(PidFile::Create(path, 1).ok());
  const std::string victim = dir.Write("victim", "999999999");
  std::filesystem::create_symlink(victim, path);
  EXPECT_FALSE(PidFile::Create(path, 1).ok()) << "links are not followed";
  EXPECT_EQ(Content(victim), "999999999");
}

}  // namespace
}  // namespace dslaunch::pid_file_test
