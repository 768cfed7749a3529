#include "agent/probe/health_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch {
namespace {

pb::HealthResult RunCommand(std::vector<std::string> argv, uint32_t timeout_ms = 10'000) {
  pb::HealthCommand command;
  for (const std::string& word : argv) command.add_argv(word);
  command.set_timeout_ms(timeout_ms);
  return RunHealthCommand(command);
}

TEST(RunHealthCommand, PassesOnExitCodeZero) {
  const pb::HealthResult result = RunCommand({"true"});
  EXPECT_TRUE(result.passed());
  EXPECT_EQ("", result.failure());
}

TEST(RunHealthCommand, ReportsExitCodeAndLastLine) {
  const pb::HealthResult result = RunCommand({"sh", "-c", "echo first; echo bad disk >&2; exit 3"});
  EXPECT_FALSE(result.passed());
  EXPECT_EQ("it ended with exit code 3: bad disk", result.failure());
}

TEST(RunHealthCommand, EndsCommandOnTimeout) {
  const pb::HealthResult result = RunCommand({"sleep", "60"}, 100);
  EXPECT_EQ("it did not end within 0.1 s", result.failure());
}

TEST(RunHealthCommand, ReportsSignal) {
  EXPECT_EQ("it was ended by SIGKILL", RunCommand({"sh", "-c", "kill -9 $$"}).failure());
}

TEST(RunHealthCommand, PassesWordsToNoShell) {
  EXPECT_TRUE(RunCommand({"test", "$HOME;exit 1", "=", "$HOME;exit 1"}).passed());
}

TEST(RunHealthCommand, ReportsMissingProgram) {
  EXPECT_THAT(RunCommand({"no-such-check"}).failure(), testing::HasSubstr("no-such-check"));
  EXPECT_EQ("the command is empty", RunCommand({}).failure());
}

}  // namespace
}  // namespace dslaunch
