#include "cli/session/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "proto/wire/node_set.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::event_log_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<nlohmann::json> Lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class EventLogTest : public testing::Test {
 protected:
  EventLog Open(const std::string& folder) {
    return EventLog(folder, /*in_log_dir=*/false,
                    [this](const std::string& text) { complaints_.push_back(text); });
  }

  TempDir folder_;
  std::vector<std::string> complaints_;
};

TEST_F(EventLogTest, WritesObjectWithTimeAndNamePerLine) {
  EventLog log = Open(folder_ / "a/job");
  LaunchPlan plan;
  plan.nodes.push_back({{"node1", "h", 0, ""}, 2, 0, false});
  pb::Program program;
  program.add_argv("./a.out");
  program.add_argv("--hf_token=abc");
  pb::EnvVar& secret = *program.add_env();
  secret.set_name("HF_TOKEN");
  secret.set_value("abc");
  log.Planned("job1", plan, program);
  pb::NodeEvent event;
  event.mutable_worker_ended()->set_rank(3);
  event.mutable_worker_ended()->set_signal(SIGKILL);
  log.Record({"node1"}, 0, event);
  log.Ended(R"({"exit_code":137})");
  const std::vector<nlohmann::json> lines = Lines(folder_ / "a/job/events.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  for (const nlohmann::json& line : lines) EXPECT_GT(line.at("t"), 1.7e9);
  EXPECT_EQ(lines[0].at("event"), "plan");
  EXPECT_EQ(lines[0].at("argv"), nlohmann::json({"./a.out", "--hf_token=***"}));
  EXPECT_EQ(lines[0].at("env").at("HF_TOKEN"), "***");
  EXPECT_EQ(lines[1].at("event"), "worker_ended");
  EXPECT_EQ(lines[1].at("node"), "node1");
  EXPECT_EQ(lines[1].at("signal_name"), "SIGKILL");
  EXPECT_EQ(lines[2].at("exit_code"), 137);
  struct stat status {};
  ASSERT_EQ(stat((folder_ / "a/job").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_THAT(complaints_, IsEmpty());
}

TEST_F(EventLogTest, RefusesFolderThatOthersMayChange) {
  std::filesystem::create_directory(folder_ / "shared");
  ASSERT_EQ(chmod((folder_ / "shared").c_str(), 0777), 0);
  Open(folder_ / "shared/job");
  EXPECT_THAT(complaints_, ElementsAre(HasSubstr("/shared may be changed by others")));
  EventLog named(folder_ / "shared/job", /*in_log_dir=*/true,
                 [this](const std::string& text) { complaints_.push_back(text); });
  EXPECT_EQ(complaints_.size(), 1u) << "a folder that the user named may be shared";
}

TEST_F(EventLogTest, LimitsShareOfEachNode) {
  EventLog log = Open(folder_ / "job");
  pb::NodeEvent event;
  event.mutable_notice()->set_message(std::string(8'000, 'x'));
  const std::vector<std::string> names = {"node1", "node2"};
  for (int i = 0; i < 10'000; ++i) log.Record(names, 1, event);
  log.Record(names, 0, event);
  log.Ended(R"({"exit_code":0})");
  struct stat status {};
  ASSERT_EQ(stat((folder_ / "job/events.jsonl").c_str(), &status), 0);
  EXPECT_LT(static_cast<size_t>(status.st_size), EventLog::kMaxBytes / 2 + (1 << 20));
  const std::vector<nlohmann::json> lines = Lines(folder_ / "job/events.jsonl");
  const auto left_out = std::ranges::count_if(
      lines, [](const nlohmann::json& line) { return line.at("event") == "events_left_out"; });
  EXPECT_EQ(left_out, 1);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[lines.size() - 3].at("event"), "events_left_out");
  EXPECT_EQ(lines[lines.size() - 3].at("node"), "node2");
  EXPECT_EQ(lines[lines.size() - 2].at("node"), "node1");
  EXPECT_EQ(lines.back().at("event"), "end");
}

// Names are written only once, because otherwise the names of thousands of nodes would fill the
// log.
TEST_F(EventLogTest, WritesNamesOfManyNodesOncePerAttempt) {
  EventLog log = Open(folder_ / "job");
  std::vector<std::string> names;
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < 2'000; ++i) {
    names.push_back("node" + std::to_string(i) + "." + std::string(60, 'x'));
    all.push_back(i);
  }
  ASSERT_GT(names.size() * names[0].size(), EventLog::kMinNodeBytes);
  pb::NodeEvent event;
  *event.mutable_started()->mutable_members() = ToNodeSet(all);
  for (const uint64_t attempt : {1, 2}) {
    event.mutable_started()->set_attempt(attempt);
    for (const size_t node : {7, 8}) log.Record(names, node, event);
  }
  const std::vector<nlohmann::json> lines = Lines(folder_ / "job/events.jsonl");
  ASSERT_EQ(lines.size(), 4u);
  for (const size_t line : {0, 2}) EXPECT_EQ(lines[line].at("nodes"), names);
  for (const size_t line : {1, 3}) EXPECT_FALSE(lines[line].contains("nodes"));
}

TEST_F(EventLogTest, ReportsMissingFolderOnce) {
  folder_.Write("file", "");
  EventLog log = Open(folder_ / "file/job");
  log.Connected("node1", "/d");
  log.Connected("node1", "/d");
  EXPECT_THAT(complaints_, ElementsAre(HasSubstr("events are not recorded: ")));
}

TEST_F(EventLogTest, ReportsFullDiskOnceAndKeepsLinesWhole) {
  EventLog log = Open(folder_ / "job");
  log.Connected("node1", "/first");
  struct stat status {};
  ASSERT_EQ(stat((folder_ / "job/events.jsonl").c_str(), &status), 0);
  // Simulates a full disk: files may grow by only half a line more.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  rlimit full = unlimited;
  full.rlim_cur = static_cast<rlim_t>(status.st_size) + 20;
  setrlimit(RLIMIT_FSIZE, &full);
  log.Connected("node2", "/half");
  log.Connected("node3", "/none");
  setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, before);
  log.Connected("node4", "/again");
  EXPECT_THAT(complaints_, ElementsAre(HasSubstr("events are missing in ")));
  std::ifstream file(folder_ / "job/events.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_FALSE(nlohmann::json::accept(lines[1]));
  EXPECT_EQ(nlohmann::json::parse(lines[2]).at("node"), "node4");
}

}  // namespace
}  // namespace dslaunch::event_log_test
