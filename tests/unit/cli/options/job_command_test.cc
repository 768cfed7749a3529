#include "cli/options/job_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace dslaunch::job_command_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = JobCommand::Kind;

constexpr int64_t kNow = 1'780'000'000'000;

Result<JobCommand> Parse(const std::vector<std::string>& words) {
  return ParseJobCommand(words, kNow);
}

std::string Refusal(const std::vector<std::string>& words) {
  const Result<JobCommand> command = Parse(words);
  if (command.ok()) return "";
  EXPECT_EQ(command.error().code, ExitCode::kUsage);
  EXPECT_EQ(command.error().message.find('\n'), std::string::npos);
  return command.error().message;
}

TEST(JobCommandTest, ReadsOptionsOfPs) {
  EXPECT_EQ(Parse({"ps"})->kind, Kind::kPs);
  const Result<JobCommand> command =
      Parse({"ps", "--prune", "--older-than", "3", "--all", "--json"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_TRUE(command->prune && command->all && command->json);
  EXPECT_EQ(command->older_than_ms, 3 * 86'400'000);
  EXPECT_THAT(Refusal({"ps", "--older_than", "3"}), HasSubstr("prune"));
  EXPECT_EQ(Parse({"ps", "abc"})->job, "abc");
  EXPECT_THAT(Refusal({"ps", "abc", "def"}), HasSubstr("'def'"));
}

TEST(JobCommandTest, ReadsOptionsOfLogsBeforeAndAfterJob) {
  const Result<JobCommand> command = Parse({"logs", "-f", "abc", "--since", "10m", "--show=1,0"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(command->job, "abc");
  EXPECT_TRUE(command->follow);
  EXPECT_EQ(command->since_unix_ms, kNow - 600'000);
  EXPECT_THAT(command->shown_ranks.ranks, ElementsAre(0, 1));
  EXPECT_THAT(Parse({"logs", "abc", "--rank", "7"})->shown_ranks.ranks, ElementsAre(7));
  EXPECT_THAT(Parse({"logs", "abc"})->shown_ranks.ranks, ElementsAre(0));
  EXPECT_NE(Refusal({"logs", "abc", "--rank", "7", "--show", "all"}), "");
  EXPECT_THAT(Refusal({"attach", "abc", "--tee", "0,3"}),
              HasSubstr("--tee is not supported: give --show"));
  EXPECT_THAT(Refusal({"logs", "abc", "--rank", "x"}), HasSubstr("--rank"));
}

TEST(JobCommandTest, ReadsDescribeAndSshCommand) {
  const Result<JobCommand> command = Parse({"describe", "last", "--ssh_command", "ssh -v"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(command->kind, Kind::kDescribe);
  EXPECT_THAT(command->ssh_command, ElementsAre("ssh", "-v"));
  for (const char* name : {"logs", "attach", "stop", "report"})
    EXPECT_TRUE(Parse({name, "last", "--ssh_command", "ssh"}).ok()) << name;
  EXPECT_TRUE(Parse({"ps", "--ssh_command", "ssh"}).ok());
  EXPECT_THAT(Refusal({"stop", "last", "--ssh_command", ""}), HasSubstr("not empty"));
}

TEST(JobCommandTest, AttachAndStopRequireJob) {
  EXPECT_EQ(Parse({"attach", "last"})->kind, Kind::kAttach);
  EXPECT_TRUE(Parse({"stop", "last", "--now"})->now);
  for (const char* name : {"attach", "stop", "logs"})
    EXPECT_THAT(Refusal({name}), HasSubstr("which job?"));
}

TEST(JobCommandTest, ReadsOptionsOfStacks) {
  const Result<JobCommand> command = Parse({"stacks", "last", "--rank", "3", "--json"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(command->kind, Kind::kStacks);
  EXPECT_EQ(command->only_rank, 3);
  EXPECT_TRUE(command->json);
  EXPECT_EQ(Parse({"stacks", "last"})->only_rank, std::nullopt);
  EXPECT_THAT(Refusal({"stacks"}), HasSubstr("which job?"));
}

TEST(JobCommandTest, ReadsOptionsOfReport) {
  const Result<JobCommand> command = Parse({"report", "last", "-o", "a.html", "--force"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(command->kind, Kind::kReport);
  EXPECT_EQ(command->job, "last");
  EXPECT_EQ(command->output, "a.html");
  EXPECT_TRUE(command->force);
  EXPECT_EQ(Parse({"report", "x"})->output, "");
  EXPECT_THAT(Refusal({"report", "x", "-o", ""}),
              HasSubstr("-o (--output) needs a value that is not empty"));
  EXPECT_THAT(Refusal({"report"}), HasSubstr("which job?"));
  EXPECT_THAT(Refusal({"report", "x", "--tee", "all"}), HasSubstr("--tee"));
}

TEST(JobCommandTest, SuggestsOptionForMisspeltOne) {
  EXPECT_THAT(Refusal({"stop", "a", "--nwo"}), HasSubstr("did you mean --now?"));
  EXPECT_THAT(Refusal({"ps", "--al"}), HasSubstr("did you mean --all?"));
  EXPECT_THAT(Refusal({"stop", "a", "b"}), HasSubstr("'b'"));
}

TEST(JobCommandTest, ReturnsHelpOnRequest) {
  const Result<JobCommand> command = Parse({"logs", "--help"});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(command->kind, Kind::kHelp);
  EXPECT_THAT(command->text, HasSubstr("dslaunch logs JOB"));
}

TEST(JobCommandTest, RecognizesJobCommands) {
  for (const char* word : {"ps", "describe", "logs", "attach", "stacks", "stop", "report"})
    EXPECT_TRUE(IsJobCommand(word));
  for (const char* word : {"./ps", "train", "", "PS"}) EXPECT_FALSE(IsJobCommand(word));
}

TEST(ParseSinceTest, ReadsAgesAndTimes) {
  setenv("TZ", "UTC-2", 1);  // makes local time UTC+2
  tzset();
  EXPECT_EQ(*ParseSince("90s", kNow), kNow - 90'000);
  EXPECT_EQ(*ParseSince("1.5h", kNow), kNow - 5'400'000);
  EXPECT_EQ(*ParseSince("2d", kNow), kNow - 2 * 86'400'000);
  EXPECT_EQ(*ParseSince("1970-01-02T00:00:05Z", kNow), 86'405'000);
  EXPECT_EQ(*ParseSince("1970-01-02T00:00:05", kNow), 86'405'000 - 7'200'000);
  EXPECT_EQ(*ParseSince("1970-01-02", kNow), 86'400'000 - 7'200'000);
  EXPECT_EQ(*ParseSince("1970-01-02 10:00Z", kNow), 86'400'000 + 36'000'000);
  for (const char* bad : {"", "10", "m", "10x", "-5m", "yesterday", "2026-13-01", "10mm"})
    EXPECT_FALSE(ParseSince(bad, kNow).ok()) << bad;
}

}  // namespace
}  // namespace dslaunch::job_command_test
