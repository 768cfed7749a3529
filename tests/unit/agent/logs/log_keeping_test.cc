#include "agent/logs/log_keeping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/log/log_file.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::log_keeping_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(DecideHoleTest, FreesOldestWholeBlocksBeyondTheLimit) {
  EXPECT_FALSE(DecideHole(100, 0, 0, 10));    // there is no limit
  EXPECT_FALSE(DecideHole(100, 0, 100, 10));  // the file is not above the limit
  EXPECT_FALSE(DecideHole(109, 0, 100, 10));  // the excess is less than a block
  const auto first = DecideHole(137, 0, 100, 10);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->begin, 0u);
  EXPECT_EQ(first->end, 30u);
  EXPECT_FALSE(DecideHole(139, 30, 100, 10));
  const auto next = DecideHole(200, 30, 100, 10);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->begin, 30u);
  EXPECT_EQ(next->end, 100u);
}

TEST(LowSpaceTest, WarnsIfDiskIsLowInBytesAndPercent) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_FALSE(LowSpaceWarning("n", "/l", 2 * kGiB, 1000 * kGiB));
  EXPECT_FALSE(LowSpaceWarning("n", "/l", kGiB / 2, kGiB));
  const auto warning = LowSpaceWarning("node2", "/logs", kGiB / 2, 100 * kGiB);
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("node2: only 512 MiB are free"));
  EXPECT_THAT(*warning, HasSubstr("/logs"));
  EXPECT_THAT(*warning, HasSubstr("--log_dir"));
}

TEST(ThinMarksTest, DropsEverySecondTimeOfTheOlderHalf) {
  EXPECT_EQ(ThinMarks("1 0 5 0\n1 1 5 0\n2 0 6 0\n2 1 6 0\n3 0 7 0\n3 1 7 0\n4 0 8 0\n4 1 8 0\n"),
            "1 0 5 0\n1 1 5 0\n3 0 7 0\n3 1 7 0\n4 0 8 0\n4 1 8 0\n");
  EXPECT_EQ(ThinMarks(""), "");
}

class LogKeepingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    keeping_.StartAttempt(dir_.path());
    keeping_.AddRank(3, folder_);
  }
  void Print(size_t bytes, const char* file = "/stdout.log") {
    std::ofstream(folder_ + file, std::ios::app) << std::string(bytes, 'x');
  }
  std::string Marks() {
    std::ifstream file(dir_.path() + "/marks");
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  uint64_t OnDisk() {
    struct stat info {};
    stat((folder_ + "/stdout.log").c_str(), &info);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }

  TempDir dir_;
  std::string folder_ = dir_.path() + "/rank_3";
  LogKeeping keeping_{"node2", 2 * kMiB};
};

TEST_F(LogKeepingTest, MarksRecordBytesWrittenByTime) {
  EXPECT_THAT(keeping_.Turn(1000), IsEmpty());  // the file does not exist yet
  EXPECT_EQ(Marks(), "");
  Print(10);
  keeping_.Turn(2000);
  keeping_.Turn(3000);  // nothing new was written
  Print(5, "/stderr.log");
  keeping_.Turn(3999);  // less than a second since the last mark
  keeping_.Turn(4000);
  EXPECT_EQ(Marks(), "2000 3 10 0\n4000 3 10 5\n");
}

TEST_F(LogKeepingTest, HalvesMarksFileAboveOneMebibyte) {
  {
    std::ofstream file(dir_.path() + "/marks");
    uint64_t bytes = 0;
    for (uint64_t time = 1'000'000'000'000; bytes <= kMiB; ++time) {
      const std::string line = std::to_string(time) + " 3 11111111111111 0\n";
      file << line;
      bytes += line.size();
    }
  }
  Print(1);
  keeping_.Turn(2000);
  EXPECT_LT(Marks().size(), kMiB);
  EXPECT_GE(Marks().size(), kMiB / 2);
  EXPECT_TRUE(Marks().ends_with("2000 3 1 0\n"));
}

TEST_F(LogKeepingTest, FreesOldestPartOfAFileAboveTheLimit) {
  Print(8 * kMiB);
  const uint64_t before = OnDisk();
  const std::vector<std::string> notices = keeping_.Turn(1000);
  if (!notices.empty()) GTEST_SKIP() << notices[0];
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/stdout.log"),
            8 * kMiB);  // offsets do not change
  EXPECT_LT(OnDisk(), before - 5 * kMiB);
  std::ifstream file(folder_ + "/stdout.log");
  file.seekg(static_cast<std::streamoff>(6 * kMiB));
  EXPECT_EQ(file.get(), 'x');  // the newest 2 MiB are kept
  file.seekg(0);
  EXPECT_EQ(file.get(), 0);
  Print(4 * kMiB);
  keeping_.Turn(1500);
  EXPECT_LE(OnDisk(), 3 * kMiB);
}

TEST_F(LogKeepingTest, WritesMarksOfNextAttemptToItsFolder) {
  Print(10);
  keeping_.Turn(1000);
  const std::string next = dir_.path() + "/next";
  std::filesystem::create_directories(next + "/rank_0");
  std::ofstream(next + "/rank_0/stdout.log") << "abc";
  keeping_.StartAttempt(next);
  keeping_.AddRank(0, next + "/rank_0");
  keeping_.Turn(2000);
  EXPECT_EQ(Marks(), "1000 3 10 0\n");
  std::ifstream file(next + "/marks");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "2000 0 3 0\n");
}

TEST_F(LogKeepingTest, IgnoresMissingFolder) {
  std::filesystem::remove_all(dir_.path());
  EXPECT_THAT(keeping_.Turn(1000), IsEmpty());
}

TEST(LogFileTest, NodeMessagesCannotForgeLogLines) {
  const TempDir dir;
  LogFile log;
  ASSERT_TRUE(log.Open(dir / "log").ok());
  log.Write(LogLevel::kInfo, "node1: a\x1b[2J\n2026-01-01T00:00:00.000+0000 info: forged");
  std::ifstream file(dir / "log");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find(" info: node1: a\n  2026-01-01T00:00:00.000+0000 info: forged\n"),
            std::string::npos)
      << text;
}

TEST(LogFileTest, FullDiskCostsOnlyLogLines) {
  LogFile log;
  ASSERT_TRUE(log.Open("/dev/full").ok());
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) log.Write(LogLevel::kInfo, "line");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace dslaunch::log_keeping_test
