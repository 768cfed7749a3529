#include "base/os/put_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/temp_dir.h"

namespace dslaunch::put_file_test {
namespace {

using ::testing::HasSubstr;

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PutFileTest, OverwritesOnlyOnRequest) {
  const TempDir dir;
  const std::string path = dir / "hf";
  ASSERT_TRUE(PutFile(path, "one\n", false).ok());
  const Result<void> again = PutFile(path, "two\n", false);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ExitCode::kUsage);
  EXPECT_THAT(again.error().message, HasSubstr("--force"));
  EXPECT_EQ(Content(path), "one\n");
  ASSERT_TRUE(PutFile(path, "three\n", true).ok());
  EXPECT_EQ(Content(path), "three\n");
  const Error missing = PutFile(dir / "no/folder", "", false).error();
  EXPECT_EQ(missing.code, ExitCode::kIo);
  EXPECT_EQ(missing.message, "cannot write " + (dir / "no/folder") + ": No such file or directory");
  EXPECT_EQ(PutFile(dir.path(), "", true).error().code, ExitCode::kIo) << "a folder";
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path()))
    ++files;
  EXPECT_EQ(files, 1u) << "nothing half written is left";
}

}  // namespace
}  // namespace dslaunch::put_file_test
