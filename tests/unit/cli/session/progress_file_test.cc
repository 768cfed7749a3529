#include "cli/session/progress_file.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace dslaunch::progress_file_test {
namespace {

pb::WorkerStatus Step(uint32_t rank, const std::string& step) {
  pb::WorkerStatus status;
  status.set_rank(rank);
  status.set_line("{\"event\":\"step\",\"step\":" + step + ",\"total_steps\":100}\n");
  return status;
}

TEST(ProgressFileTest, ReadsBackNewestStepOfLowestRank) {
  TempDir state;
  const std::string folder = state / "job";
  EXPECT_EQ(ReadProgress(folder, false), JobProgress());
  ProgressFile file(folder, false);
  EXPECT_EQ(ReadProgress(folder, false), JobProgress()) << "it is empty";
  file.OnRunning(4);
  EXPECT_EQ(ReadProgress(folder, false), (JobProgress{4, -1, 0}));
  file.OnStatus(Step(1, "31"));
  file.OnStatus(Step(0, "30"));
  file.OnStatus(Step(1, "32"));
  pb::WorkerStatus other = Step(0, "1");
  other.set_line("{\"event\":\"ready\"}\n");
  file.OnStatus(other);
  EXPECT_EQ(ReadProgress(folder, false), (JobProgress{4, 30, 100}));
  file.OnRunning(3);
  file.OnStatus(Step(1, "9223372036854775807"));
  EXPECT_EQ(ReadProgress(folder, false), (JobProgress{3, INT64_MAX, 100}));
}

TEST(ProgressFileTest, ReadsBackNewestCopyOfAllRanks) {
  TempDir state;
  const std::string folder = state / "job";
  ProgressFile file(folder, false);
  file.OnRunning(2);
  const auto copy = [&](uint32_t rank, const std::string& step) {
    pb::WorkerStatus status;
    status.set_rank(rank);
    status.set_line("{\"event\":\"copied\",\"step\":" + step + "}\n");
    file.OnStatus(status);
    return ReadProgress(folder, false);
  };
  EXPECT_EQ(copy(0, "20").copied_step, -1) << "rank 1 has none";
  const JobProgress both = copy(1, "20");
  EXPECT_EQ(both.copied_step, 20);
  EXPECT_GT(both.copied_unix_ms, 1'600'000'000'000);
  EXPECT_EQ(copy(1, "40").copied_step, 20);
  EXPECT_EQ(copy(0, "40").copied_step, 40);
}

TEST(ProgressFileTest, KeepsCopyUntilRanksContinueFromSomethingElse) {
  TempDir state;
  const std::string folder = state / "job";
  ProgressFile file(folder, false);
  const auto copied_after = [&](const std::vector<std::string>& lines) {
    file.OnRunning(1);
    for (const std::string& line : lines) {
      pb::WorkerStatus status;
      status.set_line(line + "\n");
      file.OnStatus(status);
    }
    return ReadProgress(folder, false).copied_step;
  };
  const std::string step_21 = R"({"event":"step","step":21})";
  const std::string copy = R"({"event":"copied","step":20})";
  EXPECT_EQ(copied_after({copy}), 20);
  EXPECT_EQ(copied_after({}), 20);
  EXPECT_EQ(copied_after({R"({"event":"restored","step":20,"source":"memory"})", step_21}), 20);
  EXPECT_EQ(copied_after({R"({"event":"restored","step":20,"source":"disk"})", step_21}), -1);
  EXPECT_EQ(copied_after({copy}), 20);
  EXPECT_EQ(copied_after({R"({"event":"step","step":1})"}), -1);
}

TEST(ProgressFileTest, WritesNothingWithoutFolder) {
  ProgressFile file("", false);
  file.OnRunning(1);
}

}  // namespace
}  // namespace dslaunch::progress_file_test
