#include "agent/logs/filtered_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "base/deadline.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::filtered_log_test {
namespace {

class FilteredLogTest : public testing::Test {
 protected:
  FilteredLogTest() { what_.mutable_ranks()->set_all(true); }

  // Creates the folder of a rank's log files with the given contents, and returns its path.
  std::string Rank(const std::string& name, const std::string& out, const std::string& err = "") {
    const std::string folder = dir_ / "attempt_1/" + name;
    std::filesystem::create_directories(folder);
    Append(folder + "/stdout.log", out);
    Append(folder + "/stderr.log", err);
    return folder;
  }
  static void Append(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::app) << text;
  }
  std::string Copied(const std::string& name = "filtered_stdout.log") const {
    std::ifstream file(dir_ / "attempt_1/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  asio::io_context loop_;
  TempDir dir_;
  pb::FilteredLogs what_;
};

TEST_F(FilteredLogTest, CopiesLinesThatContainAnyText) {
  what_.add_stdout_texts("loss");
  what_.add_stdout_texts("attempt");
  FilteredLog log(loop_, "node1", what_);
  log.FollowRank(2, 0, Rank("rank_2", "start\nloss 1\nattempt 2\r\nend", "loss of nothing\n"));
  log.FollowRank(3, 1, Rank("rank_3", "\x1b[1mloss\xff\nno\nthe last loss"));
  log.EndAttempt();
  EXPECT_EQ(Copied(),
            "[node1:2] loss 1\n[node1:2] attempt 2\n[node1:3] \x1b[1mloss\xff\n"
            "[node1:3] the last loss\n");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "attempt_1/filtered_stderr.log"));
}

TEST_F(FilteredLogTest, FollowsGrowingFiles) {
  what_.add_stderr_texts("bad");
  FilteredLog log(loop_, "n", what_);
  const std::string folder = Rank("rank_0", "bad\n", "half a b");
  log.FollowRank(0, 0, folder);
  Append(folder + "/stderr.log", "ad line\nfine\n");
  const Deadline deadline = Deadline::After(milliseconds(5'000));
  while (Copied("filtered_stderr.log").empty() && !deadline.Expired()) {
    loop_.restart();
    loop_.run_one_for(milliseconds(20));
  }
  EXPECT_EQ(Copied("filtered_stderr.log"), "[n:0] half a bad line\n");
  EXPECT_EQ(Copied(), "");
}

TEST_F(FilteredLogTest, CopiesSelectedRanksWithTheirTags) {
  what_.add_stdout_texts("");
  what_.mutable_ranks()->add_local_ranks(1);
  what_.set_tag_template("${role_name}${local_rank}|");
  what_.set_role("trainer");
  FilteredLog log(loop_, "n", what_);
  log.FollowRank(0, 0, Rank("rank_0", "zero\n"));
  log.FollowRank(1, 1, Rank("rank_1", "one\n\n"));
  log.EndAttempt();
  EXPECT_EQ(Copied(), "trainer1|one\ntrainer1|\n");
}

TEST_F(FilteredLogTest, WritesASeparateFilePerAttempt) {
  what_.add_stdout_texts("x");
  FilteredLog log(loop_, "n", what_);
  log.FollowRank(0, 0, Rank("rank_0", "x1\n"));
  log.EndAttempt();
  log.EndAttempt();
  Append(dir_ / "attempt_1/rank_0/stdout.log", "x too late\n");
  std::filesystem::create_directories(dir_ / "attempt_2/rank_0");
  Append(dir_ / "attempt_2/rank_0/stdout.log", "x2\n");
  log.FollowRank(0, 0, dir_ / "attempt_2/rank_0");
  loop_.run_for(milliseconds(200));
  log.EndAttempt();
  EXPECT_EQ(Copied(), "[n:0] x1\n");
  EXPECT_EQ(Copied("../attempt_2/filtered_stdout.log"), "[n:0] x2\n");
}

TEST_F(FilteredLogTest, IgnoresFileThatCannotBeWritten) {
  what_.add_stdout_texts("x");
  FilteredLog log(loop_, "n", what_);
  const std::string folder = Rank("rank_0", "x\n");
  std::filesystem::create_directory(dir_ / "attempt_1/filtered_stdout.log");
  log.FollowRank(0, 0, folder);
  log.EndAttempt();
}

}  // namespace
}  // namespace dslaunch::filtered_log_test
